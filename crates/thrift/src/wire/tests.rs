use super::*;
use proptest::prelude::*;

/// A call as encoded by a client.
fn call(name: &str, arguments: &Value) -> Vec<u8> {
    request(&Call { name: name.to_string(), sequence: 7, oneway: false, arguments: arguments.clone() }).unwrap()
}

fn read(bytes: &[u8]) -> thrift::Result<Call> {
    read_call(&mut &*bytes)
}

fn refusal(bytes: &[u8]) -> String {
    match read(bytes).unwrap_err() {
        thrift::Error::Protocol(error) => error.message,
        thrift::Error::Transport(error) => error.message,
        other => panic!("{other}"),
    }
}

fn arguments() -> Value {
    Value::Struct(vec![
        (1, Value::I32(0)),
        (2, Value::text("MyIngress.ipv4_lpm")),
        (3, Value::List(vec![Value::Struct(vec![(1, Value::I32(1)), (3, Value::Bool(true))])])),
        (4, Value::Double(0.5)),
        (5, Value::I64(-1)),
        (6, Value::I16(-2)),
        (7, Value::List(vec![Value::Bytes(vec![1, 2]), Value::Bytes(vec![])])),
    ])
}

#[test]
fn what_a_client_writes_is_read_and_every_cut_is_an_error() {
    let bytes = call("standard:bm_mt_add_entry", &arguments());
    let read_back = read(&bytes).unwrap();
    assert_eq!((read_back.name.as_str(), read_back.sequence, read_back.oneway), ("standard:bm_mt_add_entry", 7, false));
    assert_eq!(read_back.arguments, arguments());
    for end in 0..bytes.len() {
        assert!(read(&bytes[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn lengths_that_say_more_than_there_is_take_no_memory() {
    // The type of an argument, its number, and a length of 2 GiB.
    let mut bytes = call("standard:bm_load_new_config", &Value::Struct(vec![]));
    bytes.pop();
    let with = |tail: &[u8]| [bytes.as_slice(), tail].concat();
    let peak = peak_of(|| {
        let text = refusal(&with(&[11, 0, 1, 0x7f, 0xff, 0xff, 0xff]));
        assert!(text.contains("2147483647 bytes"), "{text}");
        assert!(read(&with(&[11, 0, 1, 0xff, 0xff, 0xff, 0xff])).is_err());
        // Within the limit, but more than there is.
        assert!(read(&with(&[11, 0, 1, 0, 0xf0, 0, 0])).is_err());
        // A list of 2^31 - 1 structs, and one of strings.
        assert!(read(&with(&[15, 0, 1, 12, 0x7f, 0xff, 0xff, 0xff])).is_err());
        assert!(read(&with(&[15, 0, 1, 11, 0x7f, 0xff, 0xff, 0xff])).is_err());
        assert!(read(&with(&[15, 0, 1, 12, 0xff, 0xff, 0xff, 0xff])).is_err());
    });
    assert!(peak < 1 << 20, "{peak} bytes");
    // The name of the method.
    assert!(read(&[0x80, 1, 0, 1, 0x7f, 0xff, 0xff, 0xff]).is_err());
    // An HTTP request.
    assert!(read(b"POST / HTTP/1.1\r\n\r\n").is_err());
}

/// The growth of the process's resident memory in bytes, which includes that of other tests in this process.
fn peak_of(f: impl FnOnce()) -> usize {
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let before = resident();
    f();
    resident().saturating_sub(before)
}

#[test]
fn small_values_without_number_and_nesting_without_end_are_refused() {
    let many = Value::Struct(vec![(1, Value::List(vec![Value::Bool(true); VALUES_MAX + 1]))]);
    assert!(refusal(&call("standard:x", &many)).contains("65536 values"));
    let enough = Value::Struct(vec![(1, Value::List(vec![Value::Bool(true); VALUES_MAX - 2]))]);
    assert!(read(&call("standard:x", &enough)).is_ok());
    let nested = |levels: usize| (0..levels).fold(Value::Struct(vec![]), |inner, _| Value::Struct(vec![(1, inner)]));
    assert!(read(&call("standard:x", &nested(DEPTH_MAX))).is_ok());
    assert!(refusal(&call("standard:x", &nested(DEPTH_MAX + 1))).contains("deep"));
    let twice = Value::Struct(vec![(1, Value::I32(0)), (1, Value::I32(1))]);
    assert!(refusal(&call("standard:x", &twice)).contains("twice"));
    let wide = |fields: usize| Value::Struct((0..fields).map(|id| (id as i16, Value::Bool(true))).collect());
    assert!(read(&call("standard:x", &wide(FIELDS_MAX))).is_ok());
    assert!(refusal(&call("standard:x", &wide(FIELDS_MAX + 1))).contains("32 fields"));
    let inside = Value::Struct(vec![(1, Value::List(vec![wide(FIELDS_MAX + 1)]))]);
    assert!(refusal(&call("standard:x", &inside)).contains("32 fields"));
}

#[test]
fn a_message_longer_than_the_bound_is_refused() {
    let half = Value::Bytes(vec![0; MESSAGE_BYTES_MAX / 2]);
    let bytes = call("standard:x", &Value::Struct(vec![(1, half.clone()), (2, half)]));
    assert!(bytes.len() > MESSAGE_BYTES_MAX);
    assert!(read(&bytes).is_err());
}

#[test]
fn answers_that_are_requests_are_refused() {
    let bytes = answer("bm_get_config", 1, Outcome::Result(Some(Value::text("{}")))).unwrap();
    assert!(refusal(&bytes).contains("is not a request"));
}

#[test]
fn a_list_in_encoded_form_is_the_same_list() {
    let entries: Vec<Value> = (0..5).map(|i| Value::Struct(vec![(1, Value::I64(i)), (2, Value::text("x"))])).collect();
    let mut list = Elements::of(&entries[0]);
    let mut ranges = Vec::new();
    for entry in &entries {
        let from = list.len_bytes();
        list.push(entry).unwrap();
        ranges.push(from..list.len_bytes());
    }
    let plain = answer("m", 1, Outcome::Result(Some(Value::List(entries.clone())))).unwrap();
    assert_eq!(answer("m", 1, Outcome::Result(Some(Value::Elements(list.clone())))).unwrap(), plain);
    let turned = list.reordered(ranges.into_iter().rev());
    let plain = Value::List(entries.into_iter().rev().collect());
    let plain = answer("m", 1, Outcome::Result(Some(plain))).unwrap();
    assert_eq!(answer("m", 1, Outcome::Result(Some(Value::Elements(turned)))).unwrap(), plain);
}

#[test]
fn lengths_are_those_of_the_encoded_form() {
    let mut list = Elements::of(&Value::I64(0));
    list.push(&Value::I64(7)).unwrap();
    let map = Value::Map(vec![("mtu".to_string(), "1500".to_string()), (String::new(), String::new())]);
    let all =
        [arguments(), Value::I8(1), Value::Elements(list), map, Value::List(vec![]), Value::List(vec![arguments(); 3])];
    for value in all {
        let mut out = TBinaryOutputProtocol::new(Vec::new(), true);
        write_value(&mut out, &value).unwrap();
        assert_eq!(value.len_bytes(), out.transport.len(), "{value:?}");
    }
}

#[test]
fn answers_of_all_kinds_have_a_bound() {
    let of = |bytes: usize| answer("m", 1, Outcome::Result(Some(Value::Bytes(vec![b'x'; bytes])))).unwrap();
    let longest = of(ANSWER_BYTES_MAX - 4);
    assert!(longest.ends_with(b"xxxx\0") && longest.len() > ANSWER_BYTES_MAX);
    let refused = of(ANSWER_BYTES_MAX - 3);
    assert!(refused.len() < 1000);
    assert!(String::from_utf8_lossy(&refused).contains("the answer has more than 32 MiB"));
    // The same with many texts, none of which is long.
    let many = Value::List(vec![Value::Struct(vec![(1, Value::Bytes(vec![0; 1 << 20]))]); 33]);
    assert!(answer("m", 1, Outcome::Result(Some(many))).unwrap().len() < 1000);
    let mut text = Bounded::default();
    text.write_all(&vec![b'x'; ANSWER_BYTES_MAX]).unwrap();
    assert!(text.write_all(b"x").is_err());
    assert_eq!(text.into_bytes().len(), ANSWER_BYTES_MAX);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        crate::fuzz::any(&bytes);
        let mut head = call("standard:x", &Value::Struct(vec![]));
        head.pop();
        crate::fuzz::any(&[head, bytes].concat());
    }

    #[test]
    fn a_changed_byte_is_read_or_refused(at in 0usize..200, to in any::<u8>()) {
        let mut bytes = call("standard:bm_mt_add_entry", &arguments());
        let at = at % bytes.len();
        bytes[at] = to;
        crate::fuzz::any(&bytes);
    }
}
