//! The oracle: executes IR on one packet, written for clarity, with a trace of every step.
