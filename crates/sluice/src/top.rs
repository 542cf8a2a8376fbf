//! `sluice top`: a live view of a running switch: ports, tables by hits, actions, cycles, drops.
//!
//! Every interval it reads the admin service's counters and shows their increase (`top/view.rs`): drawn with ratatui,
//! once as plain text (`--once`), or as objects (`--json`) for scripts. Each reading extends the time for which the
//! switch is watched (`watched.rs`), so watching ends soon after the command does.

mod view;

use crate::output::JsonArgs;
use crate::stats::{NO_ADMIN, ServerArgs, parse_seconds};
use anyhow::{Context, Result};
use grpc::admin::AdminStats;
use grpc::client::Client;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};
use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use view::{Section, Sort, View};

/// Arguments of `top`.
#[derive(clap::Args)]
#[command(
    after_help = "Keys: p the program or what is around it, where there is no room for both; s another order of tables, space stop and go on, up and down move in the tables, q quit."
)]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_seconds)]
    interval: f64,
    /// Look twice and print what went on between, as text.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    output: JsonArgs,
    /// What tables are ordered by.
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
}

/// How far back the samples of cycles reach.
const SAMPLED: Duration = Duration::from_secs(10);

/// Runs `sluice top`.
///
/// # Errors
/// If no switch answers, or stdout is no terminal (without `--once` and `--json`).
pub fn main(args: &Args) -> Result<ExitCode> {
    let client = args.server.connect()?;
    let interval = Duration::from_secs_f64(args.interval);
    let watcher = Watcher { client, time: 2 * interval + Duration::from_secs(5) };
    let first = watcher.read()?;
    if args.once || args.output.json {
        let mut before = first;
        loop {
            std::thread::sleep(interval);
            let now = watcher.read()?;
            let view = View::new(&before, &before, &now, args.sort);
            args.output.print_line(|| view.json(), || view.text());
            if args.once {
                return Ok(ExitCode::SUCCESS);
            }
            before = now;
        }
    }
    let mut terminal = ratatui::try_init().context("this is no terminal; --once prints text")?;
    let mut screen =
        Screen { sort: args.sort, stopped: false, program: false, offset: 0, address: args.server.address() };
    let done = screen.run(&mut terminal, &watcher, first, interval);
    ratatui::restore();
    done.map(|()| ExitCode::SUCCESS)
}

/// A connection to a switch that is watched while it is read periodically.
struct Watcher {
    client: Client,
    /// How long the switch is watched after each reading.
    time: Duration,
}

impl Watcher {
    fn read(&self) -> Result<AdminStats> {
        let stats = self.client.stats_watching(self.time)?;
        stats.context(NO_ADMIN)
    }
}

struct Screen {
    sort: Sort,
    stopped: bool,
    /// On a screen too small for all sections: whether those about the program are shown instead of the others.
    program: bool,
    /// The first visible row of the tables' section.
    offset: usize,
    address: String,
}

/// Readings, oldest first; those older than [`SAMPLED`] are dropped, except the last two.
struct Readings(VecDeque<AdminStats>);

impl Readings {
    fn push(&mut self, new: AdminStats) {
        let begin = new.uptime_us.saturating_sub(SAMPLED.as_micros() as u64);
        self.0.push_back(new);
        while self.0.len() > 2 && self.0[0].uptime_us < begin {
            self.0.pop_front();
        }
    }

    fn view(&self, sort: Sort) -> View {
        let last = self.0.len() - 1;
        View::new(&self.0[0], &self.0[last.saturating_sub(1)], &self.0[last], sort)
    }
}

impl Screen {
    fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        watcher: &Watcher,
        first: AdminStats,
        interval: Duration,
    ) -> Result<()> {
        let mut readings = Readings(VecDeque::from([first]));
        let mut next = Instant::now() + interval.min(Duration::from_millis(200));
        loop {
            let view = readings.view(self.sort);
            terminal.draw(|frame| self.draw(frame, &view))?;
            while !event::poll(next.saturating_duration_since(Instant::now()))? {
                next = Instant::now() + interval;
                if !self.stopped {
                    readings.push(watcher.read()?);
                    break;
                }
            }
            // Handle a key if there is one; otherwise it is time to draw.
            if event::poll(Duration::ZERO)? && !self.key(&event::read()?) {
                return Ok(());
            }
        }
    }

    /// Handles a key; false to quit.
    fn key(&mut self, event: &Event) -> bool {
        let Event::Key(key) = event else { return true };
        if key.kind == KeyEventKind::Release {
            return true;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('p') | KeyCode::Tab => self.program = !self.program,
            KeyCode::Char(' ') => self.stopped = !self.stopped,
            KeyCode::Down => self.offset += 1,
            KeyCode::Up => self.offset = self.offset.saturating_sub(1),
            _ => {}
        }
        true
    }

    fn draw(&mut self, frame: &mut Frame<'_>, view: &View) {
        let [heading, body, keys] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
        let state = if self.stopped { "  STOPPED" } else { "" };
        frame.render_widget(Line::from(format!("sluice {}  {}{state}", self.address, view.heading)).bold(), heading);
        let [ports, tables, actions, parts, workers, drops, queues, tenants] = &view.sections;
        // These sections follow the ports, if they have rows.
        let behind_ports: Vec<&Section> = [queues, tenants].into_iter().filter(|s| !s.rows.is_empty()).collect();
        let behind_ports = behind_ports.as_slice();
        let always = [ports, tables, actions, parts, workers, drops];
        let wanted: u16 = always.iter().chain(behind_ports).map(|s| height(s).min(9)).sum();
        let all = body.height >= wanted;
        if body.width >= WIDE {
            let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(body);
            self.column(frame, left, &[&[ports], behind_ports, &[tables, drops]].concat(), tables);
            self.column(frame, right, &[actions, parts, workers], tables);
        } else if all {
            self.column(
                frame,
                body,
                &[&[ports], behind_ports, &[tables, actions, parts, workers, drops]].concat(),
                tables,
            );
        } else if self.program {
            self.column(frame, body, &[actions, parts], tables);
        } else {
            self.column(frame, body, &[&[ports], behind_ports, &[tables, workers, drops]].concat(), tables);
        }
        let pages = if all || body.width >= WIDE { "" } else { "p program or ports   " };
        let text = format!("{pages}s order of tables ({})   space stop   up/down move   q quit", self.sort.name());
        frame.render_widget(Line::from(text).dim(), keys);
    }

    /// Draws sections below one another. Those that may have many rows share the remaining height.
    fn column(&mut self, frame: &mut Frame<'_>, area: Rect, sections: &[&Section], tables: &Section) {
        let may_be_long = |s: &Section| s.title != "ports" && s.title != "workers" && s.title != "drops";
        let constraint = |s: &&Section| match may_be_long(s) {
            true => Constraint::Fill(height(s)),
            false => Constraint::Max(height(s)),
        };
        let areas = Layout::vertical(sections.iter().map(constraint)).split(area);
        for (section, area) in sections.iter().zip(areas.iter()) {
            let mut skip = 0;
            if *section == tables {
                let room = usize::from(area.height.saturating_sub(3));
                self.offset = self.offset.min(tables.rows.len().saturating_sub(room));
                skip = self.offset;
            }
            draw_section(frame, *area, section, skip);
        }
    }
}

/// The terminal width, in columns, from which sections are drawn side by side.
const WIDE: u16 = 150;

fn height(section: &Section) -> u16 {
    section.rows.len() as u16 + 3
}

fn draw_section(frame: &mut Frame<'_>, area: Rect, section: &Section, skip: usize) {
    let block = Block::bordered().title(section.title.clone()).border_style(Style::new().dim());
    if section.rows.is_empty() {
        frame.render_widget(Paragraph::new("none").block(block), area);
        return;
    }
    let header = Row::new(section.padded(&section.header)).style(Style::new().bold());
    let rows = section.rows.iter().skip(skip).map(|row| Row::new(section.padded(row)));
    let widths = section.widths().into_iter().map(|w| Constraint::Length(w as u16));
    frame.render_widget(Table::new(rows, widths).header(header).column_spacing(2).block(block), area);
}
