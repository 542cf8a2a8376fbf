//! A compiled program described in bmv2's JSON form, for tools that read tables, actions and headers from it.
