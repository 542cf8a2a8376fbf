//! Regions of `mir` as Cranelift's alias regions.
//!
//! Cranelift's accesses are in one alias region or in none, where a load without one is not held against stores with one.
//! So regions that some access of the function names together are one region here.

use cranelift_codegen::ir::{AliasRegion, AliasRegionData, Function, MemFlagsData};
use mir::{Op, Region, Regions};

/// Flags by region.
pub(crate) struct Flags([MemFlagsData; Region::ALL.len()]);

impl Flags {
    /// The flags for a function's accesses.
    pub(crate) fn new(function: &mir::Function, func: &mut Function) -> Flags {
        // The first region of those that are one with it.
        let mut first: [usize; Region::ALL.len()] = std::array::from_fn(|i| i);
        for inst in function.layout.iter().flat_map(|block| &function.block(*block).insts) {
            let regions = match inst.op {
                Op::Load(access, _) | Op::Store(access, ..) => access.regions,
                Op::Atomic(_, regions, ..) | Op::CompareExchange(regions, ..) | Op::Release(regions, ..) => regions,
                _ => continue,
            };
            let joined: Vec<usize> = regions.iter().map(|region| first[region as usize]).collect();
            if let Some(&lowest) = joined.iter().min() {
                first.iter_mut().filter(|of| joined.contains(of)).for_each(|of| *of = lowest);
            }
        }
        let mut made: [Option<AliasRegion>; Region::ALL.len()] = [None; Region::ALL.len()];
        Flags(std::array::from_fn(|i| {
            let region = *made[first[i]].get_or_insert_with(|| {
                let description = Region::ALL[first[i]].name().into();
                func.dfg.alias_regions.insert(AliasRegionData { user_id: 1 + first[i] as u32, description })
            });
            let flags = MemFlagsData::new().with_notrap().with_alias_region(Some(region));
            let is_alone = first.iter().filter(|of| **of == first[i]).count() == 1;
            match Region::ALL[i] {
                Region::Context if is_alone => flags.with_readonly().with_can_move(),
                Region::Entry if is_alone => flags.with_readonly(),
                _ => flags,
            }
        }))
    }

    /// The flags of an access to some regions.
    pub(crate) fn of(&self, regions: Regions) -> MemFlagsData {
        regions.iter().next().map_or(MemFlagsData::new().with_notrap(), |region| self.0[region as usize])
    }
}
