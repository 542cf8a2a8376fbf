//! Admission of the regions that peers share: the switch decides, for all its ports together.
//!
//! Threads: a port's own threads ask, one at a time, and wait for the main thread, which hears the answers.

use crate::protocol::{Control, Refused, ToSwitch, send};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shared_memory::{Landlord, NotAdmitted};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the switch may take for an answer; usually a millisecond. Chosen: half of [`super::serve`]'s limit of a round.
const ANSWER_MAX: Duration = Duration::from_secs(5);

type Answer = Result<u64, Refused>;

/// Where the main thread leaves the switch's answers.
pub(super) struct SwitchRoom(Mutex<Option<Sender<Answer>>>);

impl SwitchRoom {
    /// Passes an answer on.
    pub(super) fn answer(&self, answer: Answer) {
        if let Some(sender) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = sender.send(answer);
        }
    }

    /// There will be no answer any more.
    pub(super) fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

struct Asking {
    control: Control,
    answers: Mutex<Receiver<Answer>>,
}

/// Has all regions of this process admitted by the switch.
pub(super) fn use_switch(control: &Control) -> SwitchRoom {
    let (sender, answers) = channel();
    shared_memory::ask(Arc::new(Asking { control: Arc::clone(control), answers: Mutex::new(answers) }));
    SwitchRoom(Mutex::new(Some(sender)))
}

impl Landlord for Asking {
    fn admit(&self, file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<u64, NotAdmitted> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        send(&*self.control, &ToSwitch::Admit { offset, bytes }, &[file]).map_err(NotAdmitted::NoAnswer)?;
        match answers.recv_timeout(ANSWER_MAX) {
            Ok(answer) => answer.map_err(Refused::into_reason),
            // A late answer would be taken for that to the next question.
            Err(RecvTimeoutError::Timeout) => std::process::abort(),
            Err(RecvTimeoutError::Disconnected) => {
                Err(NotAdmitted::NoAnswer(io::Error::other("the port is being closed")))
            }
        }
    }

    fn end(&self, number: u64) {
        let by = Instant::now() + ANSWER_MAX;
        while let Err(error) = send(&*self.control, &ToSwitch::End(number), &[]) {
            if error.kind() != io::ErrorKind::WouldBlock {
                // If the switch is gone, nothing is counted any more.
                return;
            }
            // A region of which the switch does not hear that it has ended would count until this process ends.
            if Instant::now() > by {
                std::process::abort();
            }
            let pause = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            let _ = poll(&mut [PollFd::new(&self.control, PollFlags::OUT)], Some(&pause));
        }
    }
}
