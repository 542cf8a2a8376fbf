//! Each rule of "Rules for Handling MasterArbitrationUpdate Messages" and "Client Arbitration Notifications".

use super::*;

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);

fn claim(election_id: Option<ElectionId>) -> ArbitrationRequest {
    ArbitrationRequest { device_id: 1, election_id, ..Default::default() }
}

/// The client, status and highest election id of each notification.
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
    // Zero is a valid id; it differs from an unset one.
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
    // A client may repeat its own claim.
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

fn named(name: impl Into<String>, election_id: Option<ElectionId>) -> ArbitrationRequest {
    ArbitrationRequest { role: Role { name: name.into(), id: 0 }, ..claim(election_id) }
}

/// Adds a configuration whose message has this many bytes.
fn configured(request: ArbitrationRequest, bytes: usize) -> ArbitrationRequest {
    let config = RoleConfig {
        objects: None,
        exclusive: Default::default(),
        replication: false,
        packets_in: crate::roles::Packets::None,
        packets_out: crate::roles::Packets::None,
        sets_program: false,
        message: (String::new(), vec![0; bytes]),
    };
    ArbitrationRequest { role_config: Some(GivenConfig::Known(config)), ..request }
}

#[test]
fn a_role_name_of_megabytes_is_refused_and_nothing_is_kept_of_it() {
    let mut roles = Roles::default();
    let error = roles.arbitrate(A, &named("x".repeat(15 << 20), Some(1))).unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.len() < 200 && error.message.contains("the limit is 256"), "{}", error.message);
    assert_eq!(roles.all(), []);
    roles.arbitrate(A, &named("x".repeat(ROLE_NAME_BYTES_MAX), Some(1))).unwrap();
}

#[test]
fn a_role_configuration_of_megabytes_is_refused_and_nothing_is_kept_of_it() {
    let mut roles = Roles::default();
    let error = roles.arbitrate(A, &configured(named("a", Some(1)), ROLE_CONFIG_BYTES_MAX + 1)).unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains("role `a`") && error.message.contains("the limit is 65536"), "{}", error.message);
    assert_eq!(roles.all(), []);
    roles.arbitrate(A, &configured(named("a", Some(1)), ROLE_CONFIG_BYTES_MAX)).unwrap();
}

#[test]
fn roles_that_never_had_a_primary_do_not_lock_out_new_roles_once_their_streams_are_gone() {
    let mut roles = Roles::default();
    for i in 0..ROLES_MAX as u64 {
        let request = named(format!("backup {i}"), None);
        roles.arbitrate(ClientId(i), &request).unwrap();
        roles.leave(1, &request.role, ClientId(i));
    }
    assert_eq!(roles.all(), []);
    roles.arbitrate(A, &named("new", Some(1))).unwrap();
}

#[test]
fn roles_whose_primaries_are_gone_do_not_lock_out_new_roles() {
    let mut roles = Roles::default();
    roles.arbitrate(A, &claim(Some(7))).unwrap();
    roles.leave(1, &Role::default(), A);
    let stays = named("stays", Some(5));
    roles.arbitrate(B, &stays).unwrap();
    for i in 0..2 * ROLES_MAX as u64 {
        let request = named(format!("role {i}"), Some(1));
        roles.arbitrate(ClientId(100 + i), &request).unwrap();
        roles.leave(1, &request.role, ClientId(100 + i));
    }
    assert_eq!(roles.all().len(), ROLES_MAX);
    // Live clients stay; the default role's highest id and those of the roles left last are remembered.
    assert!(roles.is_primary(&stays.role, B));
    assert_eq!(heard(roles.arbitrate(A, &claim(Some(6))).unwrap()), [(A, Code::NotFound, Some(7))]);
    let last = named(format!("role {}", 2 * ROLES_MAX - 1), Some(0));
    assert_eq!(heard(roles.arbitrate(C, &last).unwrap()), [(C, Code::NotFound, Some(1))]);
    // Roles with open streams do prevent a new role, and the error says so.
    let mut roles = Roles::default();
    (0..ROLES_MAX as u64).for_each(|i| _ = roles.arbitrate(ClientId(i), &named(format!("role {i}"), None)).unwrap());
    let error = roles.arbitrate(ClientId(5000), &named("new", Some(1))).unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted);
    roles.leave(1, &named("role 3", None).role, ClientId(3));
    roles.arbitrate(ClientId(5000), &named("new", Some(1))).unwrap();
}

#[test]
fn configurations_of_many_roles_do_not_fill_the_memory() {
    let mut roles = Roles::default();
    let held = |roles: &Roles| roles.roles.values().map(RoleState::config_bytes).sum::<usize>();
    let fit = ROLE_CONFIGS_BYTES_MAX / ROLE_CONFIG_BYTES_MAX;
    let large = |i: usize| configured(named(format!("role {i}"), Some(1)), ROLE_CONFIG_BYTES_MAX);
    for i in 0..3 * fit {
        roles.arbitrate(ClientId(i as u64), &large(i)).unwrap();
        roles.leave(1, &large(i).role, ClientId(i as u64));
        assert!(held(&roles) <= ROLE_CONFIGS_BYTES_MAX);
    }
    // Roles with clients are never evicted.
    for i in 0..fit {
        roles.arbitrate(ClientId(1000 + i as u64), &large(i)).unwrap();
    }
    let error = roles.arbitrate(A, &large(fit)).unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted);
    assert_eq!(held(&roles), ROLE_CONFIGS_BYTES_MAX);
    // Repeating a claim needs no more room, and a claim without a configuration still fits.
    roles.arbitrate(ClientId(1000), &large(0)).unwrap();
    roles.arbitrate(A, &named("new", Some(1))).unwrap();
}
