//! Each rule of "Rules for Handling MasterArbitrationUpdate Messages" and "Client Arbitration Notifications".

use super::*;

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);

fn claim(election_id: Option<ElectionId>) -> ArbitrationRequest {
    ArbitrationRequest { device_id: 1, election_id, ..Default::default() }
}

/// Who hears what: client, status, highest election id.
fn heard(notices: Notices) -> Vec<(ClientId, Code, Option<ElectionId>)> {
    notices.into_iter().map(|(client, update)| (client, update.status, update.election_id)).collect()
}

#[test]
fn the_first_client_with_an_id_is_primary_and_hears_so() {
    let mut roles = Roles::default();
    assert_eq!(heard(roles.arbitrate(A, &claim(Some(5))).unwrap()), [(A, Code::Ok, Some(5))]);
    assert_eq!(roles.check_primary(&Role::default(), Some(5)), Ok(()));
}

#[test]
fn a_client_without_id_is_never_primary() {
    let mut roles = Roles::default();
    assert_eq!(heard(roles.arbitrate(A, &claim(None)).unwrap()), [(A, Code::NotFound, None)]);
    assert_eq!(roles.check_primary(&Role::default(), None).unwrap_err().code, Code::PermissionDenied);
    // Zero is an id; unset is not.
    assert_eq!(
        heard(roles.arbitrate(B, &claim(Some(0))).unwrap()),
        [(A, Code::AlreadyExists, Some(0)), (B, Code::Ok, Some(0))]
    );
}

#[test]
fn a_lower_id_makes_a_backup_that_alone_is_told() {
    let mut roles = Roles::default();
    roles.arbitrate(A, &claim(Some(5))).unwrap();
    assert_eq!(heard(roles.arbitrate(B, &claim(Some(4))).unwrap()), [(B, Code::AlreadyExists, Some(5))]);
    assert_eq!(roles.check_primary(&Role::default(), Some(4)).unwrap_err().code, Code::PermissionDenied);
}

#[test]
fn a_higher_id_takes_over_and_everyone_hears_the_primary_last() {
    let mut roles = Roles::default();
    roles.arbitrate(A, &claim(Some(5))).unwrap();
    let notices = heard(roles.arbitrate(B, &claim(Some(1 << 64))).unwrap());
    assert_eq!(notices, [(A, Code::AlreadyExists, Some(1 << 64)), (B, Code::Ok, Some(1 << 64))]);
    assert_eq!(roles.check_primary(&Role::default(), Some(5)).unwrap_err().code, Code::PermissionDenied);
}

#[test]
fn an_id_in_use_is_refused() {
    let mut roles = Roles::default();
    roles.arbitrate(A, &claim(Some(5))).unwrap();
    assert_eq!(roles.arbitrate(B, &claim(Some(5))).unwrap_err().code, Code::InvalidArgument);
    // By itself it is none's but one's own.
    assert_eq!(heard(roles.arbitrate(A, &claim(Some(5))).unwrap()), [(A, Code::Ok, Some(5))]);
}

#[test]
fn when_the_primary_leaves_there_is_none_until_an_id_as_high_comes() {
    let mut roles = Roles::default();
    roles.arbitrate(A, &claim(Some(5))).unwrap();
    roles.arbitrate(B, &claim(Some(4))).unwrap();
    assert_eq!(heard(roles.leave(1, &Role::default(), A)), [(B, Code::NotFound, Some(5))]);
    assert_eq!(roles.check_primary(&Role::default(), Some(4)).unwrap_err().code, Code::PermissionDenied);
    assert_eq!(roles.check_primary(&Role::default(), Some(5)).unwrap_err().code, Code::PermissionDenied);
    assert_eq!(roles.arbitrate(C, &claim(Some(4))).unwrap_err().code, Code::InvalidArgument);
    assert_eq!(
        heard(roles.arbitrate(C, &claim(Some(5))).unwrap()),
        [(B, Code::AlreadyExists, Some(5)), (C, Code::Ok, Some(5))]
    );
}

#[test]
fn a_backup_that_leaves_is_not_missed() {
    let mut roles = Roles::default();
    roles.arbitrate(A, &claim(Some(5))).unwrap();
    roles.arbitrate(B, &claim(Some(4))).unwrap();
    assert_eq!(heard(roles.leave(1, &Role::default(), B)), []);
}

#[test]
fn a_primary_that_lowers_its_id_steps_down_and_everyone_hears() {
    let mut roles = Roles::default();
    roles.arbitrate(A, &claim(Some(5))).unwrap();
    roles.arbitrate(B, &claim(Some(2))).unwrap();
    let notices = heard(roles.arbitrate(A, &claim(Some(3))).unwrap());
    assert_eq!(notices, [(A, Code::NotFound, Some(5)), (B, Code::NotFound, Some(5))]);
}

#[test]
fn roles_have_primaries_of_their_own() {
    let mut roles = Roles::default();
    let role = Role { name: "routing".into(), id: 0 };
    assert_eq!(roles.check_primary(&role, Some(5)).unwrap_err().code, Code::NotFound);
    roles.arbitrate(A, &claim(Some(9))).unwrap();
    let request = ArbitrationRequest { role: role.clone(), ..claim(Some(5)) };
    assert_eq!(heard(roles.arbitrate(B, &request).unwrap()), [(B, Code::Ok, Some(5))]);
    assert_eq!(roles.check_primary(&role, Some(5)), Ok(()));
    assert_eq!(roles.primaries().map(|(client, _)| client).collect::<Vec<_>>(), [A, B]);
}

#[test]
fn limits_and_role_configurations_are_refused() {
    let mut roles = Roles::default();
    let with_config = ArbitrationRequest {
        role_config: Some(GivenConfig::Unknown("of no known type".to_string())),
        ..claim(Some(1))
    };
    assert_eq!(roles.arbitrate(A, &with_config).unwrap_err().code, Code::InvalidArgument);
    for i in 0..CLIENTS_MAX as u64 {
        roles.arbitrate(ClientId(100 + i), &claim(None)).unwrap();
    }
    assert_eq!(roles.arbitrate(A, &claim(None)).unwrap_err().code, Code::ResourceExhausted);
}
