//! Messages' wire formats: what is written is read as it was, bytes are those that Open vSwitch reads and writes, and damaged
//! messages are refused without panics.

mod bytes;
mod damage;
mod generate;
mod replies;
mod round_trip;

use generate::fields;
