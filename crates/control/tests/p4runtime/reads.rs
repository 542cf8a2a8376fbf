//! What reads cost others: equal queries are one, a request and all open reads have limits, and a write of all cells is one copy.

use super::*;
use control::reads::{CHANGES_MAX, READS_MAX, ReadId, WALKS_MAX, WALKS_OPEN_MAX};
use fixture::CELLS;

fn cells(index: Option<i64>, data: Option<CounterData>) -> Entity {
    Entity::Counter(CounterEntry { counter_id: id(ObjectKind::Counter, "ingress.count"), index, data })
}

fn count(packet_count: i64) -> Option<CounterData> {
    Some(CounterData { packet_count, byte_count: 0 })
}

fn counting() -> Bed {
    let mut bed = Bed::new();
    bed.set_config(ConfigAction::VerifyAndCommit, Some("router counting")).unwrap();
    bed
}

fn open(bed: &mut Bed, queries: Vec<Entity>) -> Result<(ReadId, Vec<Result<(), Error>>), Error> {
    let queries: Vec<Option<Entity>> = queries.into_iter().map(Some).collect();
    bed.control.open_read(DEVICE, &Role::default(), &queries)
}

fn rest(bed: &mut Bed, id: ReadId) -> Result<Vec<Entity>, Error> {
    let mut all = Vec::new();
    loop {
        let some = bed.control.read_on(id, 1000)?;
        if some.is_empty() {
            return Ok(all);
        }
        all.extend(some);
    }
}

#[test]
fn a_read_that_asks_the_same_thousands_of_times_costs_what_it_costs_once() {
    let mut bed = counting();
    bed.write(UpdateKind::Insert, Entity::Table(route([10, 0, 0, 0], 8, 1))).unwrap();
    // What is said of the cell's value selects nothing.
    let many = (0..2000).map(|n| cells(None, count(n))).collect();
    let (one, _) = open(&mut bed, vec![cells(None, None)]).unwrap();
    let (id, results) = open(&mut bed, many).unwrap();
    assert!(results.len() == 2000 && results.iter().all(Result::is_ok));
    assert_eq!(bed.control.read_cost(id), bed.control.read_cost(one));
    assert_eq!(rest(&mut bed, id).unwrap().len() as u64, CELLS);
    let (id, results) = open(&mut bed, vec![Entity::Table(TableEntry::default()); 50_000]).unwrap();
    assert!(results.len() == 50_000 && results.iter().all(Result::is_ok));
    // Those of the program are there, too.
    let (one, _) = open(&mut bed, vec![Entity::Table(TableEntry::default())]).unwrap();
    assert_eq!(rest(&mut bed, id).unwrap(), rest(&mut bed, one).unwrap());
}

#[test]
fn a_read_of_too_many_different_wildcards_is_refused_and_so_are_too_many_such_reads() {
    let mut bed = Bed::new();
    let by_priority = |n| {
        let entry = TableEntry { table_id: table("ingress.acl"), priority: n, ..Default::default() };
        Entity::Table(entry)
    };
    let most = WALKS_MAX as i32;
    let (id, results) = open(&mut bed, (1..most + 10).map(by_priority).collect()).unwrap();
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), WALKS_MAX);
    assert_refused(results[WALKS_MAX].clone(), Code::ResourceExhausted, "in more than 256 different queries");
    assert!(bed.control.read_cost(id) > 16 << 20, "what it can cost is told");
    for _ in 1..WALKS_OPEN_MAX / WALKS_MAX {
        open(&mut bed, (1..=most).map(by_priority).collect()).unwrap();
    }
    let refused = open(&mut bed, vec![by_priority(1)]).map(|_| ());
    assert_refused(refused, Code::ResourceExhausted, "the limit is 4096");
    // Single entries are no walks, and a place is free again.
    open(&mut bed, vec![cells(Some(1), None)]).unwrap();
    bed.control.close_read(id);
    open(&mut bed, vec![by_priority(1)]).unwrap();
}

#[test]
fn a_write_of_all_cells_during_many_reads_of_them_is_remembered_once() {
    let mut bed = counting();
    bed.write(UpdateKind::Modify, cells(None, count(7))).unwrap();
    bed.write(UpdateKind::Modify, cells(Some(4000), count(8))).unwrap();
    // A copy of each cell for each of them would be far more changes than may be remembered.
    let reads: Vec<ReadId> = (0..200).map(|_| open(&mut bed, vec![cells(None, None)]).unwrap().0).collect();
    assert!(reads.len() as u64 * CELLS > CHANGES_MAX as u64 && reads.len() < READS_MAX);
    // Some have come a part of the way, and one cell was written before.
    for id in &reads[..20] {
        assert_eq!(bed.control.read_on(*id, 1000).unwrap().len(), 1000);
    }
    bed.write(UpdateKind::Modify, cells(Some(3000), count(9))).unwrap();
    bed.write(UpdateKind::Modify, cells(None, count(0))).unwrap();
    bed.write(UpdateKind::Modify, cells(None, count(1))).unwrap();
    for (n, id) in reads.into_iter().enumerate() {
        let found = rest(&mut bed, id).unwrap();
        assert_eq!(found.len() as u64, CELLS - if n < 20 { 1000 } else { 0 });
        for found in found {
            let Entity::Counter(CounterEntry { index: Some(index), data: Some(data), .. }) = found else {
                panic!("{found:?}")
            };
            assert_eq!(data.packet_count, if index == 4000 { 8 } else { 7 }, "cell {index}");
        }
    }
    assert_eq!(bed.read(cells(Some(4000), None)).unwrap(), [cells(Some(4000), count(1))]);
}

#[test]
fn reads_that_remember_too_much_are_cut_off_before_the_copies_are_made() {
    let mut bed = counting();
    let mut open_reads = Vec::new();
    // Each write of all cells finds one read that has no copy yet.
    for n in 0..2 * CHANGES_MAX as i64 / CELLS as i64 {
        open_reads.push(open(&mut bed, vec![cells(None, None)]).unwrap().0);
        bed.write(UpdateKind::Modify, cells(None, count(n))).unwrap();
    }
    let ends: Vec<Result<usize, Code>> =
        open_reads.into_iter().map(|id| rest(&mut bed, id).map(|all| all.len()).map_err(|error| error.code)).collect();
    let whole = ends.iter().filter(|end| **end == Ok(CELLS as usize)).count();
    let cut = ends.iter().filter(|end| **end == Err(Code::Aborted)).count();
    assert_eq!((whole, cut), (CHANGES_MAX / CELLS as usize, CHANGES_MAX / CELLS as usize));
}
