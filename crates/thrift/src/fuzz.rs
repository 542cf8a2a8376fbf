//! The fuzz target for input of hostile clients; the test suite replays its findings.
//!
//! The input is the byte stream of a connection. Properties: nothing panics, and a call that has been read can be
//! written and read again unchanged.

use crate::wire::{Call, Value, read_call, request};

/// Reads calls until one is rejected or the input ends.
pub fn any(bytes: &[u8]) {
    let mut left = bytes;
    while let Ok(call) = read_call(&mut left) {
        let sent = request(&call).expect("memory takes what is written");
        let again = read_call(&mut sent.as_slice()).expect("a call that was read is a call");
        // Compares encodings, not values: NaN is not equal to itself.
        assert_eq!(request(&again).expect("memory takes what is written"), sent);
    }
}

/// Seed inputs.
pub fn seeds() -> Vec<Vec<u8>> {
    let call = |name: &str, fields: Vec<(i16, Value)>| {
        let call = Call { name: name.to_string(), sequence: 1, oneway: false, arguments: Value::Struct(fields) };
        request(&call).expect("memory takes what is written")
    };
    let key = |kind: i32, of: i16, parts: Vec<(i16, Value)>| {
        Value::Struct(vec![(1, Value::I32(kind)), (of, Value::Struct(parts))])
    };
    let bytes = |bytes: &[u8]| Value::Bytes(bytes.to_vec());
    let keys = vec![
        key(0, 2, vec![(1, bytes(&[10, 0, 0, 1]))]),
        key(1, 3, vec![(1, bytes(&[10, 0, 0, 0])), (2, Value::I32(8))]),
        key(2, 4, vec![(1, bytes(&[1])), (2, bytes(&[255]))]),
        key(3, 5, vec![(1, Value::Bool(true))]),
        key(4, 6, vec![(1, bytes(&[0, 1])), (2, bytes(&[0, 9]))]),
    ];
    let rate = |rate: f64| Value::Struct(vec![(1, Value::Double(rate)), (2, Value::I32(10))]);
    let add = call(
        "standard:bm_mt_add_entry",
        vec![
            (1, Value::I32(0)),
            (2, Value::text("MyIngress.t")),
            (3, Value::List(keys)),
            (4, Value::text("MyIngress.a")),
            (5, Value::List(vec![bytes(&[0, 5])])),
            (6, Value::Struct(vec![(1, Value::I32(10))])),
        ],
    );
    let rates = call("standard:bm_meter_array_set_rates", vec![(3, Value::List(vec![rate(0.5), rate(f64::NAN)]))]);
    let write = call("standard:bm_register_write", vec![(3, Value::I32(2)), (4, Value::I64(-1))]);
    let lag = call("simple_pre_lag:bm_mc_set_lag_membership", vec![(2, Value::I16(1)), (3, Value::text("0110"))]);
    let time = call("simple_switch:get_time_elapsed_us", vec![]);
    let one = |id: i16, value: Value| vec![(1, Value::I32(0)), (2, Value::text("x")), (id, value)];
    let texts = Value::List(vec![bytes(b"a"), bytes(b""), bytes(&[0xff; 300])]);
    let nested = Value::List(vec![Value::List(vec![Value::Struct(vec![(7, Value::I8(-1))]), Value::Struct(vec![])])]);
    let few = [
        call("standard:bm_mt_get_entries", one(3, Value::Bool(false))),
        call("standard:bm_load_new_config", vec![(1, Value::text("{ \"tables\": [] }"))]),
        call("standard:bm_mt_act_prof_add_member", one(4, texts)),
        call("standard:bm_parse_vset_add", one(3, bytes(&[8, 0]))),
        call("simple_pre:bm_mc_node_create", one(3, Value::text("101"))),
        call("simple_switch:mirroring_session_add", one(3, nested)),
    ];
    let many = [add.as_slice(), &time, &lag].concat();
    [add, rates, write, lag, time, many].into_iter().chain(few).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn seeds_are_calls() {
        for seed in super::seeds() {
            let mut left = seed.as_slice();
            while !left.is_empty() {
                crate::wire::read_call(&mut left).unwrap();
            }
            super::any(&seed);
        }
    }
}
