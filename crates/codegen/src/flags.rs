//! Translation of `mir` regions to Cranelift's alias regions.
//!
//! A Cranelift access has at most one alias region, and Cranelift assumes that a load without one does not alias stores
//! with one. So regions that appear together in some access of the function are merged into one alias region.

use cranelift_codegen::ir::{AliasRegion, AliasRegionData, Function, MemFlagsData};
use mir::{Op, Region, Regions};

/// Memory flags by region.
pub(crate) struct Flags([MemFlagsData; Region::ALL.len()]);

impl Flags {
    /// Merges the regions of a function's accesses and creates the flags.
    pub(crate) fn new(function: &mir::Function, func: &mut Function) -> Flags {
        // By region: the lowest region with which it is merged.
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

    /// The flags of an access that names these regions.
    pub(crate) fn of(&self, regions: Regions) -> MemFlagsData {
        regions.iter().next().map_or(MemFlagsData::new().with_notrap(), |region| self.0[region as usize])
    }
}
