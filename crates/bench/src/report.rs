//! What was measured, as tables.

use crate::chart;
use crate::mechanisms::{Measured, PAIRS, Pair, Plan, measure};
use anyhow::{Result, bail};
use std::path::Path;

/// Measures the pairs of these names, or all; prints them, and draws them if wished.
pub fn mechanisms(names: &[String], plan: Plan, svg: Option<&Path>) -> Result<()> {
    if let Some(name) = names.iter().find(|n| !PAIRS.iter().any(|p| p.name == *n)) {
        bail!("no pair is called {name}");
    }
    let mut all = Vec::new();
    println!(
        "{:14} {:44} {:>14} {:>14} {:>7} {:>7}",
        "mechanism", "operation", "old form/s", "new form/s", "ratio", "wanted"
    );
    for pair in PAIRS.iter().filter(|p| names.is_empty() || names.iter().any(|n| n == p.name)) {
        let measured = measure(pair, plan)?;
        println!(
            "{:14} {:44} {:>14.0} {:>14.0} {:>7.2} {:>7.2}",
            pair.name,
            pair.about,
            measured.median(0),
            measured.median(1),
            measured.ratio(),
            pair.wanted
        );
        all.push((pair, measured));
    }
    println!("\nWhat an operation costs:\n");
    println!(
        "{:14} {:14} {:>9} {:>13} {:>12} {:>13}",
        "mechanism", "form", "descents", "copied bytes", "allocations", "instructions"
    );
    for (pair, measured) in &all {
        costs(pair, measured);
    }
    if let Some(path) = svg {
        chart::draw(path, &all)?;
    }
    Ok(())
}

fn costs(pair: &Pair, measured: &Measured) {
    for ((form, _), cost) in pair.forms.iter().zip(&measured.costs) {
        let instructions = match cost.instructions {
            0.0 => "not counted".to_owned(),
            n => format!("{n:.0}"),
        };
        println!(
            "{:14} {form:14} {:>9.2} {:>13.0} {:>12.2} {instructions:>13}",
            pair.name, cost.descents, cost.copied_bytes, cost.allocations
        );
    }
}
