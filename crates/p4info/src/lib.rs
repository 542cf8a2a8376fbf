//! Typed program to P4Info: ids, annotations, documentation of the objects a controller sees.
