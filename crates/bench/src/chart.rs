//! What was measured, as a drawing.

use crate::mechanisms::{Measured, Pair};
use anyhow::{Result, anyhow};
use plotters::prelude::*;
use std::path::Path;

const COLORS: [RGBColor; 2] = [RGBColor(160, 160, 160), RGBColor(214, 140, 20)];

/// Draws each pair's speeds relative to the old form's median: a dot for each run, a bar for the median.
pub fn draw(path: &Path, all: &[(&Pair, Measured)]) -> Result<()> {
    draw_on(path, all).map_err(|e| anyhow!("{}: {e}", path.display()))
}

fn draw_on(path: &Path, all: &[(&Pair, Measured)]) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, (160 * all.len().max(4) as u32, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let relative = |measured: &Measured, speed: f64| speed / measured.median(0);
    let highest =
        all.iter().flat_map(|(_, m)| m.speeds.iter().flatten().map(|&s| relative(m, s))).fold(1.5, f64::max);
    let mut chart = ChartBuilder::on(&root)
        .caption("Each mechanism against the form that it replaces (higher is better)", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(48)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..all.len() as f64, 0.0..highest * 1.1)?;
    let label = |x: &f64| match all.get(*x as usize) {
        Some((pair, _)) if x.fract() == 0.5 => pair.name.to_owned(),
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * all.len() + 1)
        .x_label_formatter(&label)
        .y_desc("speed, old form = 1")
        .draw()?;
    for (place, (pair, measured)) in all.iter().enumerate() {
        for (form, color) in COLORS.iter().enumerate() {
            let left = place as f64 + 0.15 + 0.36 * form as f64;
            let median = relative(measured, measured.median(form));
            let bar = [(left, 0.0), (left + 0.32, median)];
            chart.draw_series([Rectangle::new(bar, color.mix(0.6).filled())])?;
            let dots = measured.speeds[form].iter().map(|&s| (left + 0.16, relative(measured, s)));
            chart.draw_series(dots.map(|at| Circle::new(at, 2, BLACK.filled())))?;
            let text = format!("{} {median:.2}", pair.forms[form].0);
            chart.draw_series([Text::new(text, (left, median + highest * 0.05), ("sans-serif", 11))])?;
        }
    }
    root.present()?;
    Ok(())
}
