//! Plots other than curves: bars with their names, and points on a logarithmic axis. SVG, by `plotters`.
//!
//! Bars are horizontal with their names on the left, however many there are, so that no legend of colours is needed. A
//! thin line goes from the lowest to the highest reading.

use crate::measure::quantile;
use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

/// A bar, or points on a line.
#[derive(Clone, PartialEq, Debug)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// For a bar, all readings; else the points.
    pub values: Vec<f64>,
}

/// Bars under one heading, which may be empty.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// The heading.
    pub heading: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// The texts around a plot's bars.
#[derive(Clone, Copy, Debug)]
pub struct Legend<'a> {
    /// The title, above.
    pub title: &'a str,
    /// The unit, under the axis.
    pub unit: &'a str,
}

const WIDTH: i32 = 900;
const TOP: i32 = 44;
const FOOT: i32 = 48;
const RIGHT: i32 = 70;
const BAR: i32 = 20;
const HEADING: i32 = 26;
const GAP: i32 = 10;
/// Approximate width of a letter, in pixels.
const LETTER: i32 = 7;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<T> = Result<T, Box<dyn std::error::Error>>;

/// A number with three significant digits.
pub fn digits(x: f64) -> String {
    match x.abs() {
        a if a >= 100.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

/// The horizontal scale: the left edge of bars in pixels, and the values at the left and the right edge.
struct Scale {
    left: i32,
    low: f64,
    high: f64,
    log: bool,
}

impl Scale {
    fn x(&self, value: f64) -> i32 {
        let part = if self.log {
            (value.max(self.low).log10() - self.low.log10()) / (self.high.log10() - self.low.log10())
        } else {
            value / self.high
        };
        self.left + (part * f64::from(WIDTH - RIGHT - self.left)).round() as i32
    }

    /// The axis' labelled values: multiples of 1, 2 or 5 times a power of ten, or powers of ten.
    fn ticks(&self) -> Vec<f64> {
        let power = |x: f64| 10f64.powf(x);
        if self.log {
            let (from, to) = (self.low.log10().round() as i32, self.high.log10().round() as i32);
            return (from..=to).map(|e| power(e.into())).collect();
        }
        let base = power((self.high / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|k| k * base).into_iter().find(|s| self.high / s <= 6.0);
        let step = step.unwrap_or(self.high);
        (0..=(self.high / step).floor() as u32).map(|i| step * f64::from(i)).collect()
    }
}

fn draw(path: &Path, legend: Legend<'_>, groups: &[Group], log: bool, one: &Painter) -> Drawn<()> {
    let all = || groups.iter().flat_map(|g| &g.bars);
    let letters = all().map(|b| b.name.chars().count()).max().unwrap_or(0) as i32;
    let values = || all().flat_map(|b| b.values.iter().copied()).filter(|v| *v > 0.0);
    let (least, most) = values().fold((f64::MAX, f64::MIN_POSITIVE), |(l, m), v| (l.min(v), m.max(v)));
    let decade = |x: f64, round: fn(f64) -> f64| 10f64.powf(round(x.log10()));
    let (low, high) = match log {
        true if least < most => (decade(least, f64::floor), decade(most, f64::ceil)),
        true => (most / 10.0, most * 10.0),
        false => (0.0, most),
    };
    let scale = Scale { left: 24 + letters * LETTER, low, high, log };
    let rows = groups.iter().map(|g| GAP + HEADING * i32::from(!g.heading.is_empty()) + BAR * g.bars.len() as i32);
    let height = TOP + rows.sum::<i32>() + FOOT;
    let area = SVGBackend::new(path, (WIDTH as u32, height as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let text = |size: i32| ("sans-serif", size).into_font().color(&BLACK);
    area.draw(&Text::new(legend.title, (16, 14), text(17)))?;
    let bottom = height - FOOT + 4;
    for tick in scale.ticks() {
        let x = scale.x(tick);
        area.draw(&PathElement::new([(x, TOP), (x, bottom)], BLACK.mix(0.15)))?;
        let label = if tick.fract() == 0.0 { format!("{tick:.0}") } else { digits(tick) };
        area.draw(&Text::new(label.clone(), (x - 3 * label.len() as i32, bottom + 5), text(12)))?;
    }
    area.draw(&Text::new(legend.unit, (scale.left, bottom + 22), text(12)))?;
    let mut names: Vec<&str> = Vec::new();
    let mut y = TOP;
    for group in groups {
        y += GAP;
        if !group.heading.is_empty() {
            area.draw(&Text::new(group.heading.as_str(), (16, y + 4), text(14)))?;
            y += HEADING;
        }
        for bar in &group.bars {
            let colour = names.iter().position(|n| *n == bar.name).unwrap_or(names.len());
            if colour == names.len() {
                names.push(&bar.name);
            }
            area.draw(&Text::new(bar.name.as_str(), (16, y + 3), text(12)))?;
            one(&area, &scale, bar, y, &Palette99::pick(colour).to_rgba())?;
            y += BAR;
        }
    }
    area.present()?;
    Ok(())
}

/// Draws one bar at a height.
type Painter = dyn Fn(&Area<'_>, &Scale, &Bar, i32, &RGBAColor) -> Drawn<()>;

/// Draws bars: as long as the median, with a line from the lowest to the highest reading.
///
/// # Errors
/// If the file cannot be written.
pub fn bars(path: &Path, legend: Legend<'_>, groups: &[Group]) -> Result<()> {
    let one = |area: &Area<'_>, scale: &Scale, bar: &Bar, y: i32, colour: &RGBAColor| -> Drawn<()> {
        let [least, median, most] = [0.0, 0.5, 1.0].map(|part| quantile(&bar.values, part));
        area.draw(&Rectangle::new([(scale.left, y + 2), (scale.x(median), y + BAR - 3)], colour.filled()))?;
        let middle = y + BAR / 2 - 1;
        let (from, to) = (scale.x(least), scale.x(most));
        area.draw(&PathElement::new([(from, middle), (to, middle)], BLACK))?;
        for x in [from, to] {
            area.draw(&PathElement::new([(x, middle - 3), (x, middle + 3)], BLACK))?;
        }
        let font = ("sans-serif", 12).into_font().color(&BLACK);
        area.draw(&Text::new(digits(median), (to.max(scale.x(median)) + 6, y + 3), font))?;
        Ok(())
    };
    draw(path, legend, groups, false, &one).map_err(|e| anyhow::anyhow!("cannot draw {}: {e}", path.display()))
}

/// Draws points on a logarithmic axis, with a line from the first to the last.
///
/// # Errors
/// If the file cannot be written.
pub fn points(path: &Path, legend: Legend<'_>, groups: &[Group]) -> Result<()> {
    let one = |area: &Area<'_>, scale: &Scale, bar: &Bar, y: i32, colour: &RGBAColor| -> Drawn<()> {
        let middle = y + BAR / 2 - 1;
        let places: Vec<(i32, i32)> = bar.values.iter().map(|v| (scale.x(*v), middle)).collect();
        area.draw(&PathElement::new(places.clone(), colour.stroke_width(2)))?;
        for at in &places {
            area.draw(&Circle::new(*at, 4, colour.filled()))?;
        }
        let last = places.last().map_or(scale.left, |at| at.0);
        let label = bar.values.iter().map(|v| digits(*v)).collect::<Vec<_>>().join(" / ");
        // Left of the points where there is no room on their right.
        let first = places.first().map_or(scale.left, |at| at.0);
        let width = LETTER * label.len() as i32;
        let x = if last + 10 + width < WIDTH { last + 10 } else { (first - 10 - width).max(scale.left) };
        area.draw(&Text::new(label, (x, y + 3), ("sans-serif", 12).into_font().color(&BLACK)))?;
        Ok(())
    };
    draw(path, legend, groups, true, &one).map_err(|e| anyhow::anyhow!("cannot draw {}: {e}", path.display()))
}
