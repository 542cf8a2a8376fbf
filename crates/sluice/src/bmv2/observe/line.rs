//! A line in the format of bmv2's log.

use std::time::SystemTime;

/// A line about a copy of a packet, or about the switch.
pub struct Line {
    level: char,
    text: String,
    copy: Option<u64>,
}

impl Line {
    fn new(level: char, text: String) -> Line {
        Line { level, text, copy: Some(0) }
    }

    pub fn trace(text: String) -> Line {
        Line::new('T', text)
    }

    pub fn debug(text: String) -> Line {
        Line::new('D', text)
    }

    pub fn info(text: String) -> Line {
        Line::new('I', text)
    }

    pub fn warning(text: String) -> Line {
        Line::new('W', text)
    }

    pub fn error(text: String) -> Line {
        Line::new('E', text)
    }

    /// Sets the number of the packet's copy, unless the line is about the switch.
    pub fn of_copy(self, copy: u64) -> Line {
        Line { copy: self.copy.map(|_| copy), ..self }
    }

    /// Makes it a line about the switch, without packet numbers.
    pub fn of_switch(self) -> Line {
        Line { copy: None, ..self }
    }

    /// Returns level and text.
    #[cfg(test)]
    pub fn said(&self) -> String {
        format!("{} {}", self.level, self.text)
    }

    /// Returns the line in bmv2's format; packets are counted from 0.
    pub fn text(&self, packet: u64) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (seconds, ms) = (now.as_secs() % 86_400, now.subsec_millis());
        let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let thread = std::process::id();
        let of = self.copy.map_or_else(String::new, |copy| format!("[{packet}.{copy}] [cxt 0] "));
        format!("[{h:02}:{m:02}:{s:02}.{ms:03}] [bmv2] [{}] [thread {thread}] {of}{}\n", self.level, self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_form_that_scripts_look_for() {
        let line = Line::debug("Parser 'parser': start".to_string()).of_copy(1).text(96);
        let (time, rest) = line.split_at("[15:16:48.145] ".len());
        assert!(time.starts_with('[') && time.ends_with("] "), "{line}");
        let thread = format!("[thread {}]", std::process::id());
        assert_eq!(rest, format!("[bmv2] [D] {thread} [96.1] [cxt 0] Parser 'parser': start\n"));
        let of_switch = Line::info("said by the program".to_string()).of_switch().of_copy(1).text(96);
        assert!(of_switch.ends_with(&format!("[bmv2] [I] {thread} said by the program\n")), "{of_switch}");
    }
}
