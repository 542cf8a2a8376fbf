//! `sluice top`: a running switch at a glance, again and again: ports, tables by hits, cycles, drops.
//!
//! Reads the admin service's counters every interval and shows what they grew by (`top/view.rs`); drawn with ratatui, or once
//! as plain text (`--once`) for scripts. Nothing is asked of the switch but what `sluice stats` asks.

mod view;

use crate::stats::ServerArgs;
use anyhow::{Context, Result};
use grpc::admin::AdminStats;
use grpc::client::Client;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use view::{Section, Sort, View};

/// Arguments of `top`.
#[derive(clap::Args)]
#[command(
    after_help = "Keys: s another order of tables, space stop and go on, up and down move in the tables, q quit."
)]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_interval)]
    interval: f64,
    /// Look twice and print what went on between, as text.
    #[arg(long)]
    once: bool,
    /// What tables are ordered by.
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is a number of seconds".to_string())?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("from 0.1 to 3600 seconds".to_string()) }
}

/// Runs it.
pub fn main(args: &Args) -> Result<ExitCode> {
    let client = args.server.connect()?;
    let interval = Duration::from_secs_f64(args.interval);
    let first = read(&client)?;
    if args.once {
        std::thread::sleep(interval);
        let view = View::new(&first, &read(&client)?, args.sort);
        println!("{}", view.heading);
        for section in &view.sections {
            print!("\n{}", section.text());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut terminal = ratatui::try_init().context("this is no terminal; --once prints text")?;
    let mut screen = Screen { sort: args.sort, stopped: false, offset: 0, address: args.server.grpc.clone() };
    let done = screen.run(&mut terminal, &client, first, interval);
    ratatui::restore();
    done.map(|()| ExitCode::SUCCESS)
}

fn read(client: &Client) -> Result<AdminStats> {
    client.stats()?.context("the server has no admin service: it is not a Sluice switch")
}

struct Screen {
    sort: Sort,
    stopped: bool,
    /// Rows of the tables' section that are scrolled away.
    offset: usize,
    address: String,
}

impl Screen {
    fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        client: &Client,
        first: AdminStats,
        interval: Duration,
    ) -> Result<()> {
        let (mut before, mut now) = (first.clone(), first);
        let mut next = Instant::now() + interval.min(Duration::from_millis(200));
        loop {
            let view = View::new(&before, &now, self.sort);
            terminal.draw(|frame| self.draw(frame, &view))?;
            while !event::poll(next.saturating_duration_since(Instant::now()))? {
                next = Instant::now() + interval;
                if !self.stopped {
                    before = std::mem::replace(&mut now, read(client)?);
                    break;
                }
            }
            // Either there is a key, or it is time to draw.
            if event::poll(Duration::ZERO)? && !self.key(&event::read()?) {
                return Ok(());
            }
        }
    }

    /// Does what a key says; whether to go on.
    fn key(&mut self, event: &Event) -> bool {
        let Event::Key(key) = event else { return true };
        if key.kind == KeyEventKind::Release {
            return true;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char(' ') => self.stopped = !self.stopped,
            KeyCode::Down => self.offset += 1,
            KeyCode::Up => self.offset = self.offset.saturating_sub(1),
            _ => {}
        }
        true
    }

    fn draw(&mut self, frame: &mut Frame<'_>, view: &View) {
        let height = |section: &Section| section.rows.len() as u16 + 3;
        let [ports, tables, workers, drops] = &view.sections;
        let areas: [_; 6] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Max(height(ports)),
            // What is many gets the room that is left.
            Constraint::Min(4),
            Constraint::Max(height(workers)),
            Constraint::Max(height(drops)),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let state = if self.stopped { "  STOPPED" } else { "" };
        frame.render_widget(Line::from(format!("sluice {}  {}{state}", self.address, view.heading)).bold(), areas[0]);
        let room = usize::from(areas[2].height.saturating_sub(3));
        self.offset = self.offset.min(tables.rows.len().saturating_sub(room));
        for (section, area, skip) in
            [(ports, areas[1], 0), (tables, areas[2], self.offset), (workers, areas[3], 0), (drops, areas[4], 0)]
        {
            let block = Block::bordered().title(section.title.clone()).border_style(Style::new().dim());
            if section.rows.is_empty() {
                frame.render_widget(Paragraph::new("none").block(block), area);
                continue;
            }
            let header = Row::new(section.padded(&section.header)).style(Style::new().bold());
            let rows = section.rows.iter().skip(skip).map(|row| Row::new(section.padded(row)));
            let widths = section.widths().into_iter().map(|w| Constraint::Length(w as u16));
            frame.render_widget(Table::new(rows, widths).header(header).column_spacing(2).block(block), area);
        }
        let keys = format!("s order of tables ({})   space stop   up/down move   q quit", self.sort.name());
        frame.render_widget(Line::from(keys).dim(), areas[5]);
    }
}
