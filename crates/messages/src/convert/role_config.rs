//! Role configurations: this project's message (`sluice.v1.RoleConfig`) and Stratum's (`stratum.P4RoleConfig`), so that
//! controllers written for Stratum need no change.

use crate::proto::sluice::v1 as own;
use control::roles::{GivenConfig, Packets, RoleConfig};
use prost::Message;

const OWN: &str = "sluice.v1.RoleConfig";
const STRATUM: &str = "stratum.P4RoleConfig";

/// The wire format of `stratum.P4RoleConfig`.
#[derive(Clone, PartialEq, Message)]
struct StratumConfig {
    #[prost(uint32, repeated, tag = "1")]
    exclusive_p4_ids: Vec<u32>,
    #[prost(uint32, repeated, tag = "2")]
    shared_p4_ids: Vec<u32>,
    #[prost(message, optional, tag = "3")]
    packet_in_filter: Option<own::role_config::Metadata>,
    #[prost(bool, tag = "4")]
    receives_packet_ins: bool,
    #[prost(bool, tag = "5")]
    can_push_pipeline: bool,
}

/// The role configuration of a claim.
pub fn role_config(any: prost_types::Any) -> GivenConfig {
    let unreadable = |e: prost::DecodeError| format!("the role configuration cannot be read: {e}");
    let name = any.type_url.rsplit('/').next().unwrap_or_default();
    let config = match name {
        OWN => own::RoleConfig::decode(any.value.as_slice()).map_err(unreadable).map(of_own),
        STRATUM => StratumConfig::decode(any.value.as_slice()).map_err(unreadable).map(of_stratum),
        other => Err(format!("role configurations are `{OWN}` or `{STRATUM}`, this is `{other}`")),
    };
    match config {
        Ok(config) => GivenConfig::Known(RoleConfig { message: (any.type_url, any.value), ..config }),
        Err(why) => GivenConfig::Unknown(why),
    }
}

fn of_own(config: own::RoleConfig) -> RoleConfig {
    let packets = |packets: Option<own::role_config::Packets>| match packets {
        None => Packets::None,
        Some(packets) if packets.all => Packets::All,
        Some(packets) => Packets::With(packets.any_of.into_iter().map(|m| (m.metadata_id, m.value)).collect()),
    };
    let objects = config.shared_ids.iter().chain(&config.exclusive_ids).copied().collect();
    RoleConfig {
        objects: (!config.all_objects).then_some(objects),
        exclusive: config.exclusive_ids.into_iter().collect(),
        replication: config.packet_replication,
        packets_in: packets(config.packet_in),
        packets_out: packets(config.packet_out),
        sets_program: config.sets_pipeline,
        message: Default::default(),
    }
}

/// Stratum's message does not restrict packet-outs and replication, so both are allowed.
fn of_stratum(config: StratumConfig) -> RoleConfig {
    let objects = config.shared_p4_ids.iter().chain(&config.exclusive_p4_ids).copied().collect();
    RoleConfig {
        objects: Some(objects),
        exclusive: config.exclusive_p4_ids.into_iter().collect(),
        replication: true,
        packets_in: match (config.receives_packet_ins, config.packet_in_filter) {
            (false, _) => Packets::None,
            (true, None) => Packets::All,
            (true, Some(filter)) => Packets::With(vec![(filter.metadata_id, filter.value)]),
        },
        packets_out: Packets::All,
        sets_program: config.can_push_pipeline,
        message: Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(name: &str, message: &impl Message) -> prost_types::Any {
        prost_types::Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() }
    }

    #[test]
    fn both_messages_are_understood_and_others_are_not() {
        let metadata = |id| own::role_config::Metadata { metadata_id: id, value: vec![7] };
        let own_config = own::RoleConfig {
            shared_ids: vec![1, 2],
            exclusive_ids: vec![3],
            packet_in: Some(own::role_config::Packets { all: false, any_of: vec![metadata(4)] }),
            ..Default::default()
        };
        let GivenConfig::Known(config) = role_config(any(OWN, &own_config)) else { panic!("it is known") };
        assert_eq!(config.objects, Some([1, 2, 3].into()));
        assert_eq!(config.exclusive, [3].into());
        assert_eq!(config.packets_in, Packets::With(vec![(4, vec![7])]));
        assert_eq!((config.packets_out, config.sets_program, config.replication), (Packets::None, false, false));
        assert_eq!(config.message.0, "type.googleapis.com/sluice.v1.RoleConfig");

        let stratum = StratumConfig { shared_p4_ids: vec![5], receives_packet_ins: true, ..Default::default() };
        let GivenConfig::Known(config) = role_config(any(STRATUM, &stratum)) else { panic!("it is known") };
        assert_eq!((config.objects, config.packets_in), (Some([5].into()), Packets::All));

        let unknown = |given| matches!(given, GivenConfig::Unknown(_));
        assert!(unknown(role_config(any("example.Role", &stratum))));
        assert!(unknown(role_config(prost_types::Any { type_url: OWN.to_string(), value: vec![0xff] })));
    }
}
