use super::*;
use crate::switch::{Port, QueueSetting, Record, Switch};
use control::Control;
use control::schema::Schema;
use std::sync::Mutex;

/// A switch without a program.
#[derive(Default)]
struct Empty {
    control: Mutex<Control>,
    records: Mutex<Vec<String>>,
}

impl Switch for Empty {
    fn device_id(&self) -> u64 {
        1
    }
    fn control(&self, f: &mut dyn FnMut(&mut Control)) {
        f(&mut self.control.lock().unwrap());
    }
    fn config(&self, _: &Schema) -> Result<String, String> {
        Ok("{}".to_string())
    }
    fn check_program(&self, _: &str) -> Result<(), String> {
        Err("no program fits".to_string())
    }
    fn load_program(&self, _: &str) -> Result<(), String> {
        Err("no program fits".to_string())
    }
    fn reset(&self) -> Result<(), String> {
        Ok(())
    }
    fn entities(&self) -> Result<String, String> {
        Ok(String::new())
    }
    fn ports(&self) -> Vec<Port> {
        vec![Port { number: 3, name: "veth3".to_string(), up: true, extra: vec![("mtu".into(), "1500".into())] }]
    }
    fn add_port(&self, _: u32, interface: &str) -> Result<(), String> {
        Err(format!("there is no {interface}"))
    }
    fn remove_port(&self, _: u32) -> Result<(), String> {
        Ok(())
    }
    fn change_queues(&self, port: Option<u32>, queue: Option<u8>, setting: QueueSetting) -> Result<(), String> {
        match setting {
            QueueSetting::Depth(0) => Err("a queue of no packets".to_string()),
            _ => {
                self.records.lock().unwrap().push(format!("{port:?} {queue:?} {setting:?}"));
                Ok(())
            }
        }
    }
    fn event_socket(&self) -> Option<String> {
        None
    }

    fn elapsed_us(&self) -> u64 {
        77
    }
    fn record(&self, record: Record<'_>) {
        self.records.lock().unwrap().push(format!("{} {} {}", record.method, record.what, record.outcome));
    }
}

fn start(most: usize, patience: Duration) -> (Server, Arc<Empty>) {
    let switch: Arc<Empty> = Arc::default();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let services = Arc::new(Services::new(switch.clone(), 9090, None));
    (Server::start(listener, services, (most, patience)).unwrap(), switch)
}

/// A call whose arguments have this encoding, and the end of the argument struct.
fn call(name: &str, arguments: &[u8]) -> Vec<u8> {
    let length = (name.len() as u32).to_be_bytes();
    [&[0x80, 1, 0, 1][..], &length, name.as_bytes(), &[0, 0, 0, 9], arguments, &[0]].concat()
}

fn answer(mut from: &TcpStream) -> Vec<u8> {
    from.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut bytes = vec![0; 4096];
    let read = from.read(&mut bytes).unwrap();
    bytes.truncate(read);
    bytes
}

fn ask(mut stream: &TcpStream, name: &str, arguments: &[u8]) -> Vec<u8> {
    stream.write_all(&call(name, arguments)).unwrap();
    answer(stream)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const ELAPSED: &str = "simple_switch:get_time_elapsed_us";

#[test]
fn calls_are_answered_and_refusals_name_what_is_not_there() {
    let (server, switch) = start(4, PATIENCE);
    let client = TcpStream::connect(server.address()).unwrap();
    assert_eq!(ask(&client, ELAPSED, &[]).last_chunk::<9>().unwrap()[..8], 77i64.to_be_bytes());
    assert!(text(&ask(&client, "standard:bm_dev_mgr_show_ports", &[])).contains("veth3"));
    assert!(text(&ask(&client, "standard:bm_nothing", &[])).contains("no method `bm_nothing`"));
    assert!(text(&ask(&client, "bm_get_config", &[])).contains("standard:bm_get_config"));
    assert!(text(&ask(&client, "other:x", &[])).contains("no service `other`"));
    assert!(text(&ask(&client, "simple_switch:set_all_egress_queue_depths", &[])).contains("argument 1"));
    assert!(text(&ask(&client, "standard:bm_get_config", &[])).contains("there is no device 1"));
    // Two calls in one write.
    (&client).write_all(&[call(ELAPSED, &[]), call(ELAPSED, &[])].concat()).unwrap();
    let mut both = answer(&client);
    while both.len() < 2 * ask(&TcpStream::connect(server.address()).unwrap(), ELAPSED, &[]).len() {
        both.extend(answer(&client));
    }
    let records = switch.records.lock().unwrap().clone();
    assert_eq!(records.len(), 1);
    assert!(records[0].starts_with("simple_switch:set_all_egress_queue_depths  "), "{records:?}");
}

/// The encoding of an `i32` or `i64` field.
fn number(field: u8, value: i64, bytes: usize) -> Vec<u8> {
    let kind = if bytes == 4 { 8 } else { 10 };
    [&[kind, 0, field][..], &value.to_be_bytes()[8 - bytes..]].concat()
}

#[test]
fn queues_have_depths_and_rates() {
    let (server, switch) = start(4, PATIENCE);
    let client = TcpStream::connect(server.address()).unwrap();
    let ask =
        |method: &str, fields: &[Vec<u8>]| text(&ask(&client, &format!("simple_switch:{method}"), &fields.concat()));
    let (four, eight) = (|field, value| number(field, value, 4), |field, value| number(field, value, 8));
    ask("set_egress_priority_queue_depth", &[four(1, 3), four(2, 7), four(3, 100)]);
    ask("set_egress_queue_depth", &[four(1, 3), four(2, 5)]);
    ask("set_all_egress_queue_rates", &[eight(1, 1 << 40)]);
    ask("set_egress_queue_rate", &[four(1, 2), eight(2, 0)]);
    assert!(ask("set_all_egress_queue_depths", &[four(1, 0)]).contains("a queue of no packets"));
    assert!(ask("set_egress_queue_depth", &[four(1, -1), four(2, 5)]).contains("-1 is not a valid port"));
    assert!(
        ask("set_egress_priority_queue_rate", &[four(1, 1), four(2, 256), eight(3, 5)])
            .contains("256 is not a valid priority")
    );
    assert!(ask("set_egress_queue_depth", &[four(1, 1), four(2, -5)]).contains("-5 packets"));
    let records = switch.records.lock().unwrap().clone();
    let set: Vec<&String> = records.iter().filter(|record| !record.contains(':')).collect();
    assert_eq!(
        set,
        [
            "Some(3) Some(7) Depth(100)",
            "Some(3) None Depth(5)",
            "None None Rate(1099511627776)",
            "Some(2) None Rate(0)"
        ]
    );
}

#[test]
fn ports_are_kernel_interfaces_only() {
    let (server, _) = start(4, PATIENCE);
    let client = TcpStream::connect(server.address()).unwrap();
    let add = |interface: &str, capture: &str| {
        let name = [&[11, 0, 1, 0, 0, 0, interface.len() as u8][..], interface.as_bytes()].concat();
        let capture = [&[11, 0, 3, 0, 0, 0, capture.len() as u8][..], capture.as_bytes()].concat();
        let arguments = [name.as_slice(), &[8, 0, 2, 0, 0, 0, 5], &capture].concat();
        ask(&client, "standard:bm_dev_mgr_add_port", &arguments)
    };
    // The method's exception with code 1.
    let refused = [12, 0, 1, 8, 0, 1, 0, 0, 0, 1, 0, 0];
    for interface in ["pcap:/etc/passwd", "../x", "vhost:/tmp/x", "veth0,mtu=9000", "", "averyveryverylongname"] {
        assert!(add(interface, "").ends_with(&refused), "{interface}");
    }
    assert!(add("veth0", "/tmp/capture").ends_with(&refused));
}

#[test]
fn names_have_a_bound_and_programs_have_none_but_that_of_a_message() {
    let (server, _) = start(4, PATIENCE);
    let client = TcpStream::connect(server.address()).unwrap();
    let texts = |id: u8, length: usize| {
        [&[11, 0, id][..], &(length as u32).to_be_bytes(), "x".repeat(length).as_bytes()].concat()
    };
    let add = ask(&client, "standard:bm_mt_get_num_entries", &texts(2, 1025));
    assert!(text(&add).contains("argument 2 is a name of 1025 bytes"), "{}", text(&add));
    assert!(text(&ask(&client, "standard:bm_mt_get_num_entries", &texts(2, 1024))).contains("there is no device"));
    assert!(text(&ask(&client, "standard:bm_load_new_config", &texts(1, 3 << 20))).contains("no program fits"));
}

#[test]
fn what_is_no_call_ends_its_connection_and_no_other() {
    let (server, _) = start(8, PATIENCE);
    let other = TcpStream::connect(server.address()).unwrap();
    for hostile in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0x80, 1, 0, 1, 0x7f, 0xff, 0xff, 0xff],
        &[0xff; 64],
        &[0x80, 1, 0, 2, 0, 0, 0, 1, b'x', 0, 0, 0, 0, 0],
    ] {
        let mut client = TcpStream::connect(server.address()).unwrap();
        client.write_all(hostile).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut rest = Vec::new();
        // Closed, or reset because some input was not read.
        let _ = client.read_to_end(&mut rest);
        assert!(rest.is_empty());
    }
    assert!(!ask(&other, ELAPSED, &[]).is_empty());
}

#[test]
fn a_call_that_does_not_come_whole_ends_and_silence_between_calls_does_not() {
    let (server, _) = start(4, Duration::from_millis(300));
    let mut half = TcpStream::connect(server.address()).unwrap();
    let silent = TcpStream::connect(server.address()).unwrap();
    half.write_all(&call(ELAPSED, &[])[..10]).unwrap();
    half.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(half.read(&mut [0; 1]).unwrap(), 0);
    std::thread::sleep(Duration::from_millis(400));
    assert!(!ask(&silent, ELAPSED, &[]).is_empty());
}

#[test]
fn the_longest_silent_connection_gives_its_place() {
    let (server, _) = start(2, PATIENCE);
    // An answer may arrive shortly before its connection counts as idle.
    let ask = |client: &TcpStream| {
        let bytes = ask(client, ELAPSED, &[]);
        while server.places.in_use() != 0 {
            std::thread::yield_now();
        }
        bytes
    };
    let first = TcpStream::connect(server.address()).unwrap();
    ask(&first);
    let second = TcpStream::connect(server.address()).unwrap();
    ask(&second);
    ask(&first);
    let third = TcpStream::connect(server.address()).unwrap();
    assert!(!ask(&third).is_empty());
    second.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!((&second).read(&mut [0; 1]).unwrap(), 0);
    assert!(!ask(&first).is_empty());
}

/// Clients that begin calls without completing them do not keep places.
#[test]
fn half_calls_keep_nobody_out() {
    let (server, _) = start(4, PATIENCE);
    for _ in 0..3 {
        let half: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
        for mut stream in &half {
            // The connection may have been evicted already.
            let _ = stream.write_all(&call(ELAPSED, &[])[..1]);
        }
        assert!(!ask(&TcpStream::connect(server.address()).unwrap(), ELAPSED, &[]).is_empty());
    }
}

#[test]
fn the_end_of_the_server_ends_connections() {
    let (server, _) = start(2, PATIENCE);
    let client = TcpStream::connect(server.address()).unwrap();
    ask(&client, ELAPSED, &[]);
    let address = server.address();
    drop(server);
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!((&client).read(&mut [0; 1]).unwrap(), 0);
    assert!(TcpStream::connect(address).is_err());
}
