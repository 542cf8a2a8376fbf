//! Workers, replication, extern state; loading and replacing programs.
