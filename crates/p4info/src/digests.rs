//! Digests as calls: v1model's `digest(receiver, data)` has no instance, so the objects in P4Info are the types of the
//! data, each named after its struct (`digest_0`, … for types without a name).

use crate::types::type_control_name;
use base::Span;
use sema::TypedProgram;
use sema::typed::{Call, Callee};
use sema::types::Type;

/// The function's name.
const DIGEST_FUNCTION: &str = "digest";

/// Name, data type and span of each distinct digest among `calls`.
pub(crate) fn digests<'p>(program: &TypedProgram, calls: impl Iterator<Item = &'p Call>) -> Vec<(String, Type, Span)> {
    let mut digests: Vec<(String, Type, Span)> = Vec::new();
    let mut unnamed = 0;
    for call in calls {
        let Callee::ExternFunction(id) = call.callee else { continue };
        let Some(ty) = call.type_args.first() else { continue };
        let is_digest = &*program.extern_functions[id.index()].name == DIGEST_FUNCTION;
        if !is_digest || digests.iter().any(|(_, have, _)| have == ty) {
            continue;
        }
        let named = program.types.struct_info(ty).filter(|info| !info.name.is_empty());
        let name = named.map(|info| type_control_name(program, info)).unwrap_or_else(|| {
            unnamed += 1;
            format!("digest_{}", unnamed - 1)
        });
        // Instantiations of the same generic struct have the same name: they are numbered.
        let taken = |name: &String| digests.iter().any(|(have, _, _)| have == name);
        let mut numbered = (1..).map(|n| format!("{name}_{n}"));
        let free = Some(name.clone()).filter(|n| !taken(n)).or_else(|| numbered.find(|n| !taken(n)));
        digests.push((free.unwrap_or(name), ty.clone(), call.span));
    }
    digests
}
