//! The control plane as a state machine without sockets.
