//! Random messages that a version can say. `crates/difftest` uses this file as well, for the first inputs of a fuzz target.

use openflow::action::{Action, Bucket, Instructions, port};
use openflow::error::ErrorKind;
use openflow::field::{Field, FieldId, Fields, OxmNumber, class};
use openflow::matching::Match;
use openflow::message::*;
use openflow::wire::Formats;
use random::Random;

/// Makes messages for one connection.
pub struct Generator<'a> {
    pub random: Random,
    pub version: Version,
    pub formats: Formats,
    pub fields: &'a Fields,
}

use Version::*;

impl Generator<'_> {
    fn u8(&mut self) -> u8 {
        self.random.next_u64() as u8
    }

    fn u16(&mut self) -> u16 {
        self.random.next_u64() as u16
    }

    fn u32(&mut self) -> u32 {
        self.random.next_u64() as u32
    }

    fn u64(&mut self) -> u64 {
        self.random.next_u64()
    }

    fn bool(&mut self) -> bool {
        self.random.one_in(2)
    }

    /// Any bits of these.
    fn bits(&mut self, known: u32) -> u32 {
        self.u32() & known
    }

    fn list<T>(&mut self, most: u64, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let len = self.random.below(most + 1);
        (0..len).map(|_| make(self)).collect()
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        self.list(most, Self::u8)
    }

    fn is_new(&self, since: Version) -> bool {
        self.version >= since
    }

    fn is_nxm(&self) -> bool {
        self.version == V10 && self.formats.flow == 2
    }

    /// A port that every version can name.
    fn port(&mut self) -> u32 {
        let reserved = [port::IN_PORT, port::LOCAL, port::CONTROLLER, port::ANY];
        if self.random.one_in(4) { *self.random.pick(&reserved) } else { 1 + self.u32() % 0xfe00 }
    }

    fn text(&mut self, most: u64) -> String {
        let len = 1 + self.random.below(most);
        (0..len).map(|_| char::from(b'a' + self.u8() % 26)).collect()
    }

    fn counts(&mut self) -> Counts {
        Counts { packets: self.u64() >> 1, bytes: self.u64() >> 1 }
    }

    fn duration(&mut self) -> (u32, u32) {
        (self.u32() >> 1, self.u32() % 1_000_000_000)
    }

    fn named(&self, name: &str) -> FieldId {
        self.fields.named(name).expect("the field exists")
    }

    fn matching(&mut self) -> Match {
        let is_fixed = self.version == V10 && !self.is_nxm();
        let names: &[&str] = if is_fixed {
            &["eth_src", "eth_dst", "eth_type"]
        } else {
            &["eth_src", "eth_dst", "eth_type", "ip_proto", "ipv4_src", "tunnel_id", "reg0"]
        };
        let mut matching = Match::any();
        if self.bool() {
            let number = self.port();
            matching.add(self.named("in_port"), u128::from(number), u128::from(u32::MAX));
        }
        for name in names {
            let id = self.named(name);
            let full = self.fields.get(id).full();
            let value = self.random.next_u128();
            match self.random.below(3) {
                0 => matching.add(id, value, full),
                1 if !is_fixed => matching.add(id, value, self.random.next_u128() & full | 1),
                _ => true,
            };
        }
        matching
    }

    fn action(&mut self) -> Action {
        match self.random.below(3) {
            0 => Action::Output { port: port::CONTROLLER, max_len: self.u16() },
            1 => Action::Exit,
            _ => Action::SetQueue(self.u32()),
        }
    }

    fn actions(&mut self) -> Vec<Action> {
        self.list(3, Self::action)
    }

    fn instructions(&mut self) -> Instructions {
        let apply = self.actions();
        if self.version == V10 {
            return Instructions { apply, ..Instructions::default() };
        }
        Instructions {
            meter: (self.bool() && !self.is_new(V15)).then(|| 1 + self.u32() % 1000),
            apply,
            clear: self.bool(),
            write: if self.bool() { vec![Action::Output { port: 7, max_len: 0 }] } else { Vec::new() },
            metadata: self.bool().then_some((0x1234, 0xffff)),
            goto: self.bool().then(|| 1 + self.u8() % 100),
        }
    }

    fn timeouts(&mut self) -> Timeouts {
        Timeouts { idle: self.u16(), hard: self.u16() }
    }

    fn flow_flags(&mut self) -> u16 {
        self.bits(if self.version == V10 { 0x03 } else { 0x1f }) as u16
    }

    fn flow_mod(&mut self) -> FlowMod {
        use FlowCommand::*;
        let command = *self.random.pick(&[Add, Modify, ModifyStrict, Delete, DeleteStrict]);
        let is_delete = matches!(command, Delete | DeleteStrict);
        let is_old = self.version == V10;
        let has_table = !is_old || self.formats.flow_mod_table_id;
        let mut flags = self.flow_flags();
        if is_old && command == Add {
            flags |= flow_flag::RESET_COUNTS;
        }
        let can_filter = command != Add && (!is_old || self.is_nxm());
        let cookie_mask = if can_filter && self.bool() { self.u64() | 1 } else { 0 };
        let cookie = self.u64();
        let mut instructions = self.instructions();
        if is_old {
            instructions.metadata = self.bool().then_some((0x1234, 0xffff));
        }
        FlowMod {
            command,
            table: if has_table { self.u8() % 255 } else { 255 },
            matching: self.matching(),
            priority: self.u16(),
            cookie: if cookie_mask == 0 || !is_old { cookie } else { cookie & cookie_mask },
            cookie_mask,
            timeouts: self.timeouts(),
            buffer: self.u32(),
            out_port: if is_delete { self.port() } else { port::ANY },
            out_group: if is_delete && !is_old { self.u32() } else { GROUP_ANY },
            flags,
            importance: if self.is_new(V14) { self.u16() } else { 0 },
            instructions,
        }
    }

    fn flow_removed(&mut self) -> FlowRemoved {
        use RemovedReason::*;
        let all = [IdleTimeout, HardTimeout, Delete, GroupDelete, MeterDelete, Eviction];
        let known = if self.version == V10 {
            3
        } else if self.is_new(V14) {
            6
        } else {
            4
        };
        let is_old = self.version == V10;
        let timeouts = self.timeouts();
        FlowRemoved {
            matching: self.matching(),
            priority: self.u16(),
            cookie: self.u64(),
            table: if is_old && !self.is_nxm() { 255 } else { self.u8() },
            reason: *self.random.pick(&all[..known]),
            duration: self.duration(),
            timeouts: if is_old { Timeouts { hard: 0, ..timeouts } } else { timeouts },
            counts: self.counts(),
        }
    }

    fn filter(&mut self) -> FlowFilter {
        let has_cookie = self.version != V10 || self.is_nxm();
        let cookie_mask = if has_cookie && self.bool() { self.u64() | 1 } else { 0 };
        FlowFilter {
            table: self.u8(),
            out_port: self.port(),
            out_group: if self.version == V10 { GROUP_ANY } else { self.u32() },
            cookie: if has_cookie { self.u64() & cookie_mask } else { 0 },
            cookie_mask,
            matching: self.matching(),
        }
    }

    fn flow(&mut self) -> FlowEntry {
        let ages = match self.version {
            V10 if self.is_nxm() => (u32::from(self.u16() >> 1), u32::from(self.u16() >> 1)),
            V15 => (self.u32(), 0),
            _ => (0, 0),
        };
        FlowEntry {
            table: self.u8(),
            matching: self.matching(),
            priority: self.u16(),
            cookie: self.u64(),
            timeouts: self.timeouts(),
            flags: if self.version == V10 { 0 } else { self.flow_flags() },
            importance: if self.is_new(V14) { self.u16() } else { 0 },
            duration: self.duration(),
            ages,
            counts: self.counts(),
            instructions: self.instructions(),
        }
    }

    /// A flow with what `OFPMP_FLOW_STATS` and flow monitors tell.
    fn short_flow(&mut self, with_counts: bool) -> FlowEntry {
        let flow = self.flow();
        let without = FlowEntry { flags: 0, importance: 0, ..flow };
        if with_counts {
            let none = Timeouts::default();
            FlowEntry { cookie: 0, timeouts: none, instructions: Instructions::default(), ..without }
        } else {
            FlowEntry { duration: (0, 0), ages: (0, 0), counts: Counts::default(), ..without }
        }
    }

    fn port_desc(&mut self) -> Port {
        let is_old = self.version == V10;
        let features = if is_old { 0xf87f } else { 0xffff };
        Port {
            number: 1 + self.u32() % 0xfe00,
            address: std::array::from_fn(|_| self.u8()),
            name: self.text(15),
            config: self.bits(if is_old { 0x7f } else { 0x65 }),
            state: self.bits(if is_old { 0x301 } else { 0x7 }),
            features: std::array::from_fn(|_| self.bits(features)),
            speeds: if is_old { [0; 2] } else { [self.u32(), self.u32()] },
        }
    }

    fn bucket(&mut self, place: usize) -> Bucket {
        Bucket {
            id: place as u32,
            weight: self.u16(),
            watch_port: self.bool().then(|| 1 + self.u32() % 1000),
            watch_group: self.bool().then(|| 1 + self.u32() % 1000),
            actions: self.actions(),
        }
    }

    fn buckets(&mut self) -> Vec<Bucket> {
        let len = self.random.index(4);
        (0..len).map(|place| self.bucket(place)).collect()
    }

    fn selection(&mut self, kind: GroupKind) -> Selection {
        if !matches!(self.version, V10 | V15) || kind != GroupKind::Select || self.bool() {
            return Selection::default();
        }
        if self.bool() {
            return Selection { method: "dp_hash".to_string(), parameter: self.u64(), fields: Vec::new() };
        }
        let fields = vec![(self.named("ipv4_src"), u128::from(self.u32())), (self.named("eth_dst"), 0xff_0000_0000)];
        Selection { method: "hash".to_string(), parameter: self.u64(), fields }
    }

    fn group_kind(&mut self) -> GroupKind {
        use GroupKind::*;
        *self.random.pick(&[All, Select, Indirect, FastFailover])
    }

    fn group_mod(&mut self) -> GroupMod {
        use GroupCommand::*;
        let has_buckets = matches!(self.version, V10 | V15);
        let commands = [Add, Modify, AddOrModify, Delete, InsertBucket(bucket::LAST), RemoveBucket(bucket::ALL)];
        let command = *self.random.pick(&commands[..if has_buckets { 6 } else { 4 }]);
        let kind = self.group_kind();
        let buckets = if matches!(command, Delete | RemoveBucket(_)) { Vec::new() } else { self.buckets() };
        let can_select = matches!(command, Add | Modify | AddOrModify);
        let selection = if can_select { self.selection(kind) } else { Selection::default() };
        GroupMod { command, group: self.u32(), kind, buckets, selection }
    }

    fn group_desc(&mut self) -> GroupDesc {
        let kind = self.group_kind();
        GroupDesc { group: self.u32(), kind, buckets: self.buckets(), selection: self.selection(kind) }
    }

    fn band(&mut self) -> Band {
        let kind = if self.bool() { BandKind::Drop } else { BandKind::DscpRemark(self.u8()) };
        Band { kind, rate: self.u32(), burst: self.u32() }
    }

    fn meter(&mut self, command: MeterCommand) -> MeterMod {
        MeterMod { command, flags: self.u16(), meter: self.u32(), bands: self.list(3, Self::band) }
    }

    fn meter_mod(&mut self) -> MeterMod {
        let command = *self.random.pick(&[MeterCommand::Add, MeterCommand::Modify, MeterCommand::Delete]);
        self.meter(command)
    }

    fn port_mod(&mut self) -> PortMod {
        let is_old = self.version == V10;
        PortMod {
            port: 1 + self.u32() % 0xfe00,
            address: std::array::from_fn(|_| self.u8()),
            config: self.bits(if is_old { 0x7f } else { 0x65 }),
            mask: self.bits(if is_old { 0x7f } else { 0x65 }),
            advertise: self.bits(if is_old { 0xf87f } else { 0xffff }),
        }
    }

    fn packet_in(&mut self, format: u32) -> PacketIn {
        let mut fields = Match::any();
        fields.add(self.named("in_port"), u128::from(1 + self.u32() % 0xfe00), u128::from(u32::MAX));
        let is_plain = self.version == V10 && format == 0;
        if !is_plain && self.bool() {
            fields.add(self.named("tunnel_id"), u128::from(self.u64()), u128::from(u64::MAX));
        }
        let mut frame = self.bytes(80);
        frame.push(1);
        PacketIn {
            total_len: frame.len() as u16 + self.u16() % 1000,
            reason: if self.is_new(V14) { self.u8() % 6 } else { self.u8() % 3 },
            table: if is_plain { 0 } else { self.u8() },
            cookie: if is_plain { u64::MAX } else { self.u64() },
            fields,
            frame,
            userdata: if format == 2 { self.bytes(9) } else { Vec::new() },
            continuation: if format == 2 && self.bool() { Some(self.bytes(30)) } else { None },
        }
    }

    fn packet_out(&mut self) -> PacketOut {
        let in_port = *self.random.pick(&[1, 0xfe00, port::CONTROLLER, port::LOCAL, port::ANY]);
        let mut fields = Match::any();
        fields.add(self.named("in_port"), u128::from(in_port), u128::from(u32::MAX));
        if self.is_new(V15) && self.bool() {
            fields.add(self.named("tunnel_id"), u128::from(self.u64()), u128::from(u64::MAX));
        }
        let buffer = if self.bool() { u32::MAX } else { 1 };
        let frame = if buffer == u32::MAX { self.bytes(70) } else { Vec::new() };
        PacketOut { buffer, fields, in_port, actions: self.actions(), frame }
    }

    fn role(&mut self) -> Role {
        let all = [Role::Equal, Role::Master, Role::Slave, Role::NoChange];
        *self.random.pick(&all[..if self.version == V10 { 3 } else { 4 }])
    }

    fn role_request(&mut self) -> RoleRequest {
        let generation = (self.version != V10 && self.bool()).then(|| self.u64() >> 1);
        RoleRequest { role: self.role(), generation, short: if self.is_new(V15) { self.u16() } else { u16::MAX } }
    }

    fn asynchronous(&mut self, with_all: bool) -> AsyncConfig {
        let is_14 = self.is_new(V14);
        let mut pair = |known| [self.bits(known), self.bits(known)];
        // Before 1.4 an action's packets have one reason.
        let by_action = |mask: u32| if mask & 2 == 0 { mask } else { mask | 0x38 };
        let mut config = AsyncConfig {
            packet_in: if is_14 { pair(0x3f) } else { pair(0x07).map(by_action) },
            port_status: pair(7),
            flow_removed: pair(0x3f),
            ..AsyncConfig::default()
        };
        if with_all {
            (config.role_status, config.table_status, config.requestforward) = (pair(7), pair(0x18), pair(3));
        }
        config
    }

    fn inner(&mut self) -> Message {
        match self.random.below(5) {
            0 => Message::GroupMod(self.group_mod()),
            1 => Message::PortMod(self.port_mod()),
            2 => Message::PacketOut(self.packet_out()),
            3 => Message::MeterMod(self.meter_mod()),
            _ => Message::FlowMod(self.flow_mod()),
        }
    }

    fn vacancy(&mut self) -> Option<(u8, u8, u8)> {
        let down = self.u8() % 50;
        self.bool().then(|| (down, 50 + down, self.u8() % 100))
    }

    fn controller(&mut self) -> ControllerStatus {
        ControllerStatus {
            short: self.u16(),
            role: self.role(),
            reason: self.u8(),
            is_up: self.bool(),
            uri: format!("tcp:{}", self.text(20)),
        }
    }

    fn queue(&mut self, port: u32) -> Queue {
        let mut rate = || self.random.one_in(2).then_some(500);
        let rates = [rate(), rate()];
        Queue { port, queue: self.u32(), rates }
    }

    fn table_features(&mut self) -> TableFeatures {
        let is_new = self.is_new(V15);
        let field = self.named("eth_type");
        let pair = |random: &mut Random| std::array::from_fn(|_| vec![random.below(30) as u16, 6]);
        TableFeatures {
            table: self.u8() % 255,
            command: if is_new { self.u8() % 4 } else { 0 },
            features: if is_new { self.u32() } else { 0 },
            name: self.text(31),
            metadata: (self.u64(), self.u64()),
            config: self.u32(),
            max: self.u32(),
            instructions: pair(&mut self.random),
            next: [self.bytes(5), self.bytes(5)],
            write: pair(&mut self.random),
            apply: pair(&mut self.random),
            matches: vec![(field, false), (self.named("ipv4_dst"), true), (self.named("reg0"), true)],
            wildcards: vec![field],
            write_fields: [vec![field], Vec::new()],
            apply_fields: [vec![self.named("ipv4_src"), field], vec![field]],
        }
    }

    fn monitor(&mut self) -> FlowMonitor {
        use MonitorCommand::*;
        let is_new = self.is_new(V14);
        FlowMonitor {
            id: self.u32(),
            command: if is_new { *self.random.pick(&[Add, Modify, Delete]) } else { Add },
            flags: self.bits(if is_new { 0x7f } else { 0x3f }) as u16 | monitor_flag::ADD,
            out_port: self.port(),
            out_group: if is_new { self.u32() } else { GROUP_ANY },
            table: self.u8(),
            matching: self.matching(),
        }
    }

    fn update(&mut self) -> FlowUpdate {
        use UpdateEvent::*;
        match self.random.below(3) {
            0 => FlowUpdate::Abbreviated { xid: self.u32() },
            1 if self.is_new(V14) => FlowUpdate::Paused(self.bool()),
            _ => {
                let known = if self.is_new(V14) { 4 } else { 3 };
                let event = *self.random.pick(&[Added, Removed, Modified, Initial][..known]);
                let reason = if event == Removed { RemovedReason::Delete } else { RemovedReason::IdleTimeout };
                FlowUpdate::Full { event, reason, flow: self.short_flow(false) }
            }
        }
    }

    fn desc(&mut self) -> Desc {
        Desc {
            manufacturer: self.text(255),
            hardware: self.text(255),
            software: self.text(255),
            serial: self.text(31),
            datapath: self.text(255),
        }
    }

    fn port_stats(&mut self) -> PortStats {
        PortStats {
            port: 1 + self.u32() % 0xfe00,
            received: self.counts(),
            sent: self.counts(),
            dropped: [self.u64(), self.u64()],
            errors: [self.u64(), self.u64()],
            duration: if self.version == V10 { (0, 0) } else { self.duration() },
        }
    }

    fn table_stats(&mut self) -> TableStats {
        let is_old = self.version == V10;
        TableStats {
            table: self.u8(),
            name: if is_old { self.text(31) } else { String::new() },
            max: if is_old { self.u32() } else { 0 },
            active: self.u32(),
            lookups: self.u64(),
            matched: self.u64(),
        }
    }

    fn queue_stats(&mut self) -> QueueStats {
        QueueStats {
            port: 1 + self.u32() % 0xfe00,
            queue: self.u32(),
            sent: self.counts(),
            errors: self.u64(),
            duration: if self.version == V10 { (0, 0) } else { self.duration() },
        }
    }

    fn group_stats(&mut self) -> GroupStats {
        GroupStats {
            group: self.u32(),
            references: self.u32(),
            counts: self.counts(),
            duration: self.duration(),
            buckets: self.list(3, Self::counts),
        }
    }

    fn meter_stats(&mut self) -> MeterStats {
        MeterStats {
            meter: self.u32(),
            flows: self.u32(),
            counts: self.counts(),
            duration: self.duration(),
            bands: self.list(3, Self::counts),
        }
    }

    /// One of each multipart request.
    pub fn requests(&mut self) -> Vec<Request> {
        let is_15 = self.is_new(V15);
        let mut all = vec![
            Request::Desc,
            Request::Flow(self.filter()),
            Request::Aggregate(self.filter()),
            Request::Table,
            Request::PortStats { port: self.port() },
            Request::PortDesc { port: if is_15 { self.port() } else { port::ANY } },
            Request::Queue { port: self.port(), queue: self.u32() },
            Request::Group { group: self.u32() },
            Request::GroupDesc { group: if is_15 || self.version == V10 { self.u32() } else { GROUP_ALL } },
            Request::GroupFeatures,
            Request::FlowMonitor(self.list(3, Self::monitor)),
            Request::Experimenter { experimenter: 0x123456, kind: if self.version == V10 { 0 } else { 5 } },
        ];
        if self.is_new(V13) {
            all.push(Request::Meter { meter: self.u32() });
            all.push(Request::MeterConfig { meter: self.u32() });
            all.push(Request::MeterFeatures);
            all.push(Request::TableFeatures(self.list(3, Self::table_features)));
        }
        if self.is_new(V14) {
            all.push(Request::TableDesc);
            all.push(Request::QueueDesc { port: self.port(), queue: self.u32() });
        }
        if is_15 {
            all.push(Request::FlowStats(self.filter()));
            all.push(Request::BundleFeatures { flags: self.u32() });
            all.push(Request::ControllerStatus);
        }
        all
    }

    /// One of each multipart reply.
    pub fn replies(&mut self) -> Vec<Reply> {
        let is_15 = self.is_new(V15);
        let port = 1 + self.u32() % 1000;
        let four = |random: &mut Random| std::array::from_fn(|_| random.next_u64() as u32);
        let mut all = vec![
            Reply::Desc(self.desc()),
            Reply::Flow(self.list(4, Self::flow)),
            Reply::Aggregate { counts: self.counts(), flows: self.u32() },
            Reply::Table(self.list(4, Self::table_stats)),
            Reply::PortStats(self.list(4, Self::port_stats)),
            Reply::PortDesc(self.list(4, Self::port_desc)),
            Reply::Queue(self.list(4, Self::queue_stats)),
            Reply::Group(self.list(4, Self::group_stats)),
            Reply::GroupDesc(self.list(4, Self::group_desc)),
            Reply::GroupFeatures(GroupFeatures {
                kinds: self.u32(),
                capabilities: self.u32(),
                max: four(&mut self.random),
                actions: four(&mut self.random),
            }),
            Reply::FlowMonitor(self.list(4, Self::update)),
        ];
        if self.is_new(V13) {
            all.push(Reply::Meter(self.list(4, Self::meter_stats)));
            all.push(Reply::MeterConfig(self.list(4, |g| g.meter(MeterCommand::Add))));
            all.push(Reply::MeterFeatures(MeterFeatures {
                max: self.u32(),
                bands: self.u32(),
                capabilities: self.u32(),
                max_bands: self.u8(),
                max_colors: self.u8(),
                features: if is_15 { self.u32() } else { 0 },
            }));
            all.push(Reply::TableFeatures(self.list(3, Self::table_features)));
        }
        if self.is_new(V14) {
            all.push(Reply::TableDesc(self.list(4, |g| (g.u8(), g.u32(), g.vacancy()))));
            all.push(Reply::QueueDesc(self.list(4, |g| g.queue(port))));
        }
        if is_15 {
            all.push(Reply::FlowStats(self.list(4, |g| g.short_flow(true))));
            all.push(Reply::BundleFeatures { capabilities: self.u16() });
            all.push(Reply::ControllerStatus(self.list(4, Self::controller)));
        }
        all
    }

    /// One of each message.
    pub fn messages(&mut self) -> Vec<Message> {
        let is_old = self.version == V10;
        let is_14 = self.is_new(V14);
        let is_15 = self.is_new(V15);
        let kinds: Vec<ErrorKind> = ErrorKind::all().filter(|kind| kind.own_code(self.version).is_some()).collect();
        let kind = *self.random.pick(&kinds);
        let kind = if is_old && kind == ErrorKind::BrcIsSlave { ErrorKind::BrcEperm } else { kind };
        let mut all = vec![
            Message::Hello { versions: 0x02 | 1 << self.version as u8 },
            Message::Error { kind, data: self.bytes(70) },
            Message::EchoRequest(self.bytes(20)),
            Message::EchoReply(self.bytes(20)),
            Message::FeaturesRequest,
            Message::FeaturesReply(Features {
                datapath: self.u64(),
                buffers: self.u32(),
                tables: self.u8(),
                auxiliary: if is_old { 0 } else { self.u8() },
                capabilities: self.bits(if is_old { 0xe7 } else { 0x16f }),
                actions: if is_old { self.u32() } else { 0 },
                ports: if is_old { self.list(4, Self::port_desc) } else { Vec::new() },
            }),
            Message::GetConfigRequest,
            Message::GetConfigReply(SwitchConfig { flags: self.u16(), miss_send_len: self.u16() }),
            Message::SetConfig(SwitchConfig { flags: self.u16(), miss_send_len: self.u16() }),
            Message::PacketIn(Box::new(self.packet_in(self.formats.packet_in))),
            Message::Resume(Box::new(PacketIn { userdata: Vec::new(), ..self.packet_in(2) })),
            Message::PacketOut(self.packet_out()),
            Message::FlowRemoved(self.flow_removed()),
            Message::PortStatus {
                reason: *self.random.pick(&[PortReason::Add, PortReason::Delete, PortReason::Modify]),
                port: self.port_desc(),
            },
            Message::FlowMod(self.flow_mod()),
            Message::GroupMod(self.group_mod()),
            Message::PortMod(self.port_mod()),
            Message::BarrierRequest,
            Message::BarrierReply,
            Message::RoleRequest(self.role_request()),
            Message::RoleReply(self.role_request()),
            Message::SetAsync(self.asynchronous(self.version as u8 % 2 == 1)),
            Message::SetPacketInFormat(self.u32() % 3),
            Message::FlowModTableId(self.bool()),
            Message::SetControllerId(self.u16()),
            Message::TlvTable,
            Message::Experimenter { experimenter: 0x123456, kind: self.u32(), data: self.bytes(30) },
        ];
        if is_old {
            all.push(Message::SetFlowFormat(self.u32() % 2 * 2));
        }
        if !is_14 {
            let port = 1 + self.u32() % 1000;
            let owner = if is_old { port } else { 9 };
            all.push(Message::QueueGetConfigRequest { port });
            all.push(Message::QueueGetConfigReply { port, queues: self.list(3, |g| g.queue(owner)) });
            all.push(Message::FlowMonitorCancel(self.u32()));
            all.push(Message::FlowMonitorPaused);
            all.push(Message::FlowMonitorResumed);
        }
        if !is_old {
            let vacancy = self.vacancy().filter(|_| is_14);
            let bundles = [BundleControl::OpenRequest, BundleControl::CommitReply, BundleControl::DiscardRequest];
            all.push(Message::MeterMod(self.meter_mod()));
            let vacancy = vacancy.map(|(down, up, _)| (down, up));
            all.push(Message::TableMod { table: self.u8(), config: self.u32(), vacancy });
            all.push(Message::GetAsyncRequest);
            all.push(Message::GetAsyncReply(self.asynchronous(is_14)));
            all.push(Message::RoleStatus { role: self.role(), reason: self.u8(), generation: self.u64() });
            let kind = *self.random.pick(&bundles);
            all.push(Message::BundleControl { bundle: self.u32(), kind, flags: self.u16() });
            let message = Box::new(Framed { version: self.version, xid: 77, message: self.inner() });
            all.push(Message::BundleAdd { bundle: self.u32(), flags: self.u16(), message });
            let message = Message::MeterMod(self.meter_mod());
            all.push(Message::Requestforward(Box::new(Framed { version: self.version, xid: self.u32(), message })));
        }
        if is_14 {
            let vacancy = self.vacancy();
            all.push(Message::TableStatus { reason: self.u8(), table: self.u8(), config: self.u32(), vacancy });
        }
        if is_15 {
            all.push(Message::ControllerStatus(self.controller()));
        }
        all.extend(self.requests().into_iter().map(Message::Multipart));
        let more = self.bool();
        all.extend(self.replies().into_iter().map(|reply| Message::MultipartReply { reply, more }));
        all
    }
}

/// The connections that are tried: each version, and Nicira's formats.
pub fn connections() -> Vec<(Version, Formats)> {
    let plain = Formats::default();
    let mut all: Vec<_> = Version::ALL.into_iter().map(|version| (version, plain)).collect();
    for packet_in in [1, 2] {
        all.extend(Version::ALL.into_iter().map(|version| (version, Formats { packet_in, ..plain })));
    }
    for flow in [0, 2] {
        all.push((V10, Formats { flow, flow_mod_table_id: true, ..plain }));
        all.push((V10, Formats { flow, ..plain }));
    }
    all
}

/// A few fields of OpenFlow's and of Nicira's classes.
pub fn fields() -> Fields {
    let oxm = |field| OxmNumber { class: class::OPENFLOW_BASIC, field, experimenter: 0 };
    let nxm = |class, field| OxmNumber { class, field, experimenter: 0 };
    let field = |name: &str, width, numbers: &[OxmNumber]| Field {
        name: name.to_string(),
        width,
        numbers: numbers.to_vec(),
        maskable: true,
        writable: true,
        prerequisites: Vec::new(),
    };
    let all = vec![
        field("in_port", 32, &[oxm(0), nxm(0, 0)]),
        field("metadata", 64, &[oxm(2)]),
        field("eth_dst", 48, &[oxm(3), nxm(0, 1)]),
        field("eth_src", 48, &[oxm(4), nxm(0, 2)]),
        field("eth_type", 16, &[oxm(5), nxm(0, 3)]),
        field("ip_proto", 8, &[oxm(10), nxm(0, 6)]),
        field("ipv4_src", 32, &[oxm(11), nxm(0, 7)]),
        field("ipv4_dst", 32, &[oxm(12), nxm(0, 8)]),
        field("tunnel_id", 64, &[oxm(38), nxm(1, 16)]),
        field("reg0", 32, &[nxm(1, 0)]),
    ];
    Fields::new(all).expect("the fields differ")
}
