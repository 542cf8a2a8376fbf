//! Parameters of hashes, which the protocol has no entity for: set by name, read, taken back.

use super::*;
use UpdateKind::{Delete, Insert, Modify};
use abi::state::{CrcParameters, HashParameters, PipelineState};

fn calculation(name: &str, parameters: Option<HashParameters>) -> Entity {
    Entity::Calculation(CalculationEntry { name: name.to_string(), parameters })
}

fn ccitt() -> Option<HashParameters> {
    Some(HashParameters::Crc(CrcParameters::CCITT))
}

#[test]
fn parameters_are_set_by_name_and_read() {
    let mut bed = Bed::new();
    let key = Some(HashParameters::Toeplitz(vec![0x6d, 0x5a, 0x56, 0xda]));
    bed.write(Modify, calculation("calc", ccitt())).unwrap();
    bed.write(Modify, calculation("calc_0", key.clone())).unwrap();
    let all = [calculation("calc", ccitt()), calculation("calc_0", key)];
    assert_eq!(bed.read(calculation("", None)).unwrap(), all);
    assert_eq!(bed.read(calculation("calc", None)).unwrap(), all[..1]);
    assert_eq!(bed.switch.state().hash_parameters()[2], (Some("calc".to_string()), ccitt().unwrap()));
}

#[test]
fn what_is_no_calculation_or_no_parameters_is_refused() {
    let mut bed = Bed::new();
    let kept = bed.read(calculation("", None)).unwrap();
    assert_refused(bed.write(Modify, calculation("none", ccitt())), Code::NotFound, "calculation `none`");
    assert_refused(bed.write(Modify, calculation("", ccitt())), Code::NotFound, "calculation ``");
    assert_refused(bed.write(Modify, calculation("calc_0", ccitt())), Code::InvalidArgument, "calculation `calc_0`");
    let odd = Some(HashParameters::Toeplitz(vec![1, 2, 3]));
    assert_refused(bed.write(Modify, calculation("calc_0", odd)), Code::InvalidArgument, "calculation `calc_0`");
    assert_refused(bed.write(Modify, calculation("calc", None)), Code::InvalidArgument, "no parameters");
    for kind in [Insert, Delete] {
        assert_refused(bed.write(kind, calculation("calc", ccitt())), Code::InvalidArgument, "only be modified");
    }
    assert_refused(bed.read(calculation("none", None)), Code::NotFound, "calculation `none`");
    assert_eq!(bed.read(calculation("", None)).unwrap(), kept);
}

#[test]
fn a_batch_that_is_rolled_back_takes_parameters_back() {
    let mut bed = Bed::new();
    let kept = bed.read(calculation("", None)).unwrap();
    let update = |name: &str| Update { kind: Modify, entity: Some(calculation(name, ccitt())) };
    let updates = vec![update("calc"), update("none")];
    let request = WriteRequest { updates, atomicity: Atomicity::RollbackOnError, ..batch() };
    let results = bed.control.write(&request).unwrap();
    assert!(results.iter().all(Result::is_err));
    assert_eq!(bed.read(calculation("", None)).unwrap(), kept);
}
