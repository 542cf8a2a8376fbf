//! Random writes to the fixture's router, from a seed: every kind of entity, small ranges of ids and keys, so that many
//! inserts meet an entry, many deletes find one, and references are often there.

use super::{ObjectKind, id};
use control::entity::*;

pub struct Random(random::Random);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(random::Random::new(seed))
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.below(limit)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn byte(&mut self, limit: u64) -> u8 {
        self.below(limit) as u8
    }

    pub fn batch(&mut self) -> (Vec<Update>, Atomicity) {
        let updates = (0..self.below(6) + 1).map(|_| self.update()).collect();
        (updates, if self.one_in(4) { Atomicity::RollbackOnError } else { Atomicity::ContinueOnError })
    }

    fn update(&mut self) -> Update {
        let entity = self.entity();
        let changes_only = matches!(
            &entity,
            Entity::Counter(_)
                | Entity::Meter(_)
                | Entity::Register(_)
                | Entity::ValueSet(_)
                | Entity::DirectCounter(_)
                | Entity::DirectMeter(_)
        ) || matches!(&entity, Entity::Table(e) if e.is_default_action);
        let kind = match self.below(5) {
            _ if changes_only => UpdateKind::Modify,
            0 | 1 => UpdateKind::Insert,
            2 | 3 => UpdateKind::Modify,
            _ => UpdateKind::Delete,
        };
        Update { kind, entity: Some(entity) }
    }

    pub fn forward(port: u8) -> Action {
        let action_id = id(ObjectKind::Action, "ingress.forward");
        Action { action_id, params: vec![(1, vec![port]), (2, vec![0xaa, port])] }
    }

    fn action(&mut self) -> Action {
        Random::forward(self.byte(200))
    }

    /// Bytes of a number, not always the shortest.
    fn number(&mut self, value: u8) -> Vec<u8> {
        if self.one_in(3) { vec![0, value] } else { vec![value] }
    }

    fn watch(&mut self) -> Watch {
        if self.one_in(2) { Watch::Unset } else { Watch::Port(vec![self.byte(3) + 1]) }
    }

    fn counter_data(&mut self) -> CounterData {
        CounterData { byte_count: self.below(1000) as i64, packet_count: self.below(10) as i64 }
    }

    fn meter_config(&mut self) -> Option<MeterConfig> {
        let cir = self.below(50) as i64;
        let config = MeterConfig { cir, cburst: 10, pir: cir + 5, pburst: 20, eburst: 0 };
        (!self.one_in(3)).then_some(config)
    }

    fn index(&mut self, size: u64) -> Option<i64> {
        (!self.one_in(6)).then(|| self.below(size) as i64)
    }

    fn replicas(&mut self) -> Vec<Replica> {
        let replica = |port: u8| Replica { port: ReplicaPort::Port(vec![port]), instance: 1, ..Default::default() };
        (1..=self.byte(3) + 1).map(replica).collect()
    }

    fn route(&mut self) -> TableEntry {
        let value = MatchValue::Lpm { value: vec![10, 0, self.byte(4), 0], prefix_len: 24 };
        TableEntry {
            table_id: id(ObjectKind::Table, "ingress.ipv4_lpm"),
            // The default route has no field.
            matches: if self.one_in(4) { vec![] } else { vec![FieldMatch { field_id: 1, value }] },
            ..Default::default()
        }
    }

    fn table(&mut self) -> TableEntry {
        let field = |field_id, value| FieldMatch { field_id, value };
        let metadata = if self.one_in(2) { vec![self.byte(9)] } else { vec![] };
        let action = Some(TableAction::Action(self.action()));
        match self.below(5) {
            0 => TableEntry {
                action: action.filter(|_| !self.one_in(4)),
                metadata,
                idle_timeout_ns: if self.one_in(2) { 1_000_000_000_000 } else { 0 },
                counter_data: if self.one_in(2) { Some(self.counter_data()) } else { None },
                meter_config: self.meter_config(),
                ..self.route()
            },
            1 => {
                let (protocol, port) = (self.byte(3), self.byte(2));
                let (protocol, port) = (self.number(protocol), self.number(port));
                let ternary = MatchValue::Ternary { value: vec![10, 0, 0, 0], mask: vec![255, 0, 0, 0] };
                let mut matches = vec![field(1, ternary), field(4, MatchValue::Exact(port))];
                if self.one_in(2) {
                    matches.push(field(3, MatchValue::Optional(protocol)));
                }
                if self.one_in(2) {
                    matches.reverse();
                }
                let table_id = id(ObjectKind::Table, "ingress.acl");
                let priority = self.below(2) as i32 + 1;
                TableEntry { table_id, matches, priority, metadata, action, ..Default::default() }
            }
            2 => {
                let name = ["red", "green", "7", "\0x"][self.below(4) as usize];
                let matches = vec![field(1, MatchValue::Exact(name.into()))];
                let table_id = id(ObjectKind::Table, "ingress.vrfs");
                TableEntry { table_id, matches, metadata, action, ..Default::default() }
            }
            3 => {
                let action = match self.below(4) {
                    0 => TableAction::Member(self.below(3) as u32 + 1),
                    1 => TableAction::Group(self.below(2) as u32 + 1),
                    _ => {
                        let part = |random: &mut Random| WeightedAction {
                            action: Some(random.action()),
                            weight: random.below(2) as i32 + 1,
                            watch: random.watch(),
                        };
                        let actions = (0..self.below(3)).map(|_| part(self)).collect();
                        TableAction::OneShot(ActionSet { actions, ..Default::default() })
                    }
                };
                let group = self.byte(3);
                let matches = vec![field(1, MatchValue::Exact(self.number(group)))];
                let table_id = id(ObjectKind::Table, "ingress.ecmp");
                TableEntry { table_id, matches, metadata, action: Some(action), ..Default::default() }
            }
            _ => TableEntry {
                table_id: id(ObjectKind::Table, ["ingress.keyless", "ingress.acl"][self.below(2) as usize]),
                is_default_action: true,
                action: action.filter(|_| !self.one_in(3)),
                metadata,
                ..Default::default()
            },
        }
    }

    fn entity(&mut self) -> Entity {
        let action_profile_id = id(ObjectKind::ActionProfile, "ingress.selector");
        match self.below(18) {
            0..=5 => Entity::Table(self.table()),
            6 | 7 => {
                let member_id = self.below(3) as u32 + 1;
                Entity::Member(Member { action_profile_id, member_id, action: Some(self.action()) })
            }
            8 => {
                let member =
                    |random: &mut Random, member_id| GroupMember { member_id, weight: 1, watch: random.watch() };
                let members = (1..=self.below(3) as u32).map(|member_id| member(self, member_id)).collect();
                let group_id = self.below(2) as u32 + 1;
                Entity::Group(Group { action_profile_id, group_id, members, max_size: 4 })
            }
            9 => {
                let index = self.index(4);
                let data = Some(self.counter_data());
                Entity::Counter(CounterEntry { counter_id: id(ObjectKind::Counter, "ingress.count"), index, data })
            }
            10 => Entity::Meter(MeterEntry {
                meter_id: id(ObjectKind::Meter, "ingress.police"),
                index: self.index(4),
                config: self.meter_config(),
                counter_data: None,
            }),
            11 => {
                let pair = self.one_in(2);
                let (name, size) = if pair { ("ingress.pair", 2) } else { ("ingress.state", 4) };
                let value = P4Data::Bitstring(vec![self.byte(100)]);
                let data = match pair {
                    true => P4Data::Struct(vec![value, P4Data::Bool(self.one_in(2))]),
                    false => value,
                };
                let register_id = id(ObjectKind::Register, name);
                Entity::Register(RegisterEntry { register_id, index: self.index(size), data: Some(data) })
            }
            12 => {
                let member = |value: u8| vec![FieldMatch { field_id: 1, value: MatchValue::Exact(vec![8, value]) }];
                let members = (0..self.byte(3)).map(member).collect();
                Entity::ValueSet(ValueSetEntry { value_set_id: id(ObjectKind::ValueSet, "parser.types"), members })
            }
            13 => {
                let group_id = self.below(3) as u32 + 1;
                Entity::MulticastGroup(MulticastGroup { group_id, replicas: self.replicas(), metadata: vec![3] })
            }
            14 => Entity::CloneSession(CloneSession {
                session_id: self.below(3) as u32 + 1,
                replicas: self.replicas(),
                class_of_service: self.below(4) as u32,
                packet_length_bytes: 64,
            }),
            15 => {
                let config = DigestConfig { max_timeout_ns: 5, max_list_size: 4, ack_timeout_ns: 3 };
                Entity::Digest(DigestEntry { digest_id: id(ObjectKind::Digest, "learn"), config: Some(config) })
            }
            16 => Entity::DirectCounter(DirectCounterEntry {
                table_entry: Some(self.route()),
                data: Some(self.counter_data()),
            }),
            _ => Entity::DirectMeter(DirectMeterEntry {
                table_entry: Some(self.route()),
                config: self.meter_config(),
                counter_data: None,
            }),
        }
    }
}
