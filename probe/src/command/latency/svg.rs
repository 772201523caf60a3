//! A plot of percentiles as SVG.
//!
//! Promises: one file without scripts, fonts or links; both axes are logarithmic, so that the tail is as easy to read as the middle; the
//! points are those of the histogram. Does not do: anything interactive.

use std::fmt::Write as _;

use hdrhistogram::Histogram;

use crate::output::nanoseconds;

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 60.0;
/// Points of each line.
const STEPS: u32 = 200;
/// At most so many nines behind the point of the last percentile.
const DECADES: u32 = 7;

/// One line of the plot.
pub(super) struct Curve<'a> {
    /// What it is called.
    pub(super) name: &'a str,
    /// A colour of SVG.
    pub(super) colour: &'a str,
    /// The times, in nanoseconds.
    pub(super) histogram: &'a Histogram<u64>,
}

/// Draws curves; those without a value are left out.
pub(super) fn draw(title: &str, curves: &[Curve<'_>]) -> String {
    let curves: Vec<_> = curves
        .iter()
        .filter(|one| !one.histogram.is_empty())
        .collect();
    let lowest = curves.iter().map(|one| one.histogram.min()).min();
    let highest = curves.iter().map(|one| one.histogram.max()).max();
    let count = curves.iter().map(|one| one.histogram.len()).max();
    let plot = Plot {
        bottom: floor_decade(lowest.unwrap_or(1)),
        top: floor_decade(highest.unwrap_or(1)) + 1,
        decades: reaches(count.unwrap_or(1)).clamp(1, DECADES),
    };
    let mut svg = String::new();
    // Writing to a string can't fail; so it is everywhere below.
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{}</text>",
        escaped(title)
    );
    plot.axes(&mut svg);
    for (at, curve) in curves.iter().enumerate() {
        plot.curve(&mut svg, curve);
        let x = LEFT + 260.0 * at as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"36\" width=\"14\" height=\"4\" fill=\"{0}\"/>\
             <text x=\"{1}\" y=\"42\">{2}</text>",
            curve.colour,
            x + 20.0,
            escaped(curve.name)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

struct Plot {
    /// Powers of ten in nanoseconds.
    bottom: u32,
    top: u32,
    /// Powers of ten of one in so many.
    decades: u32,
}

impl Plot {
    fn x(&self, decade: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * decade / f64::from(self.decades)
    }

    fn y(&self, time: f64) -> f64 {
        let span = f64::from(self.top - self.bottom);
        let above = time.max(1.0).log10() - f64::from(self.bottom);
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * above / span
    }

    fn axes(&self, svg: &mut String) {
        for decade in self.bottom..=self.top {
            let time = 10_u64.pow(decade);
            let y = self.y(time as f64);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ccc\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                axis(time)
            );
        }
        for decade in 0..=self.decades {
            let x = self.x(decade.into());
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{0}\" stroke=\"#ccc\"/>\
                 <text x=\"{x:.1}\" y=\"{1}\" text-anchor=\"middle\">{2}</text>",
                HEIGHT - BOTTOM,
                HEIGHT - BOTTOM + 18.0,
                percentile(decade)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">percentile</text>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 14.0
        );
    }

    fn curve(&self, svg: &mut String, curve: &Curve<'_>) {
        let points: Vec<_> = (0..=STEPS)
            .map(|step| {
                let decade = f64::from(self.decades * step) / f64::from(STEPS);
                let time = curve
                    .histogram
                    .value_at_quantile(1.0 - 10_f64.powf(-decade));
                format!("{:.1},{:.1}", self.x(decade), self.y(time as f64))
            })
            .collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" points=\"{}\"/>",
            curve.colour,
            points.join(" ")
        );
    }
}

/// The largest power of ten that is not above.
fn floor_decade(time: u64) -> u32 {
    time.max(1).ilog10()
}

/// The power of ten that a count reaches.
fn reaches(count: u64) -> u32 {
    count.max(1).ilog10()
}

/// `0`, `90`, `99`, `99.9`.
fn percentile(decade: u32) -> String {
    match decade {
        0 => "0".to_owned(),
        1 => "90".to_owned(),
        2 => "99".to_owned(),
        more => format!("99.{}", "9".repeat(more as usize - 2)), // a few
    }
}

/// `10 us` for 10,000: a power of ten needs no digits behind the point.
fn axis(time: u64) -> String {
    nanoseconds(time).replace(".00", "").replace(".0", "")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread;

    #[test]
    fn the_plot_has_an_axis_to_the_last_percentile_that_the_count_gives() {
        let mut histogram = spread::histogram().unwrap();
        for time in 1..=10_000_u64 {
            histogram.saturating_record(time * 100);
        }
        let curve = |name| Curve {
            name,
            colour: "#1f77b4",
            histogram: &histogram,
        };
        let svg = draw("a < b & c", &[curve("one"), curve("two")]);
        assert!(svg.contains("a &lt; b &amp; c"));
        assert_eq!(svg.matches("<polyline").count(), 2);
        for text in [">99.99<", ">100 ns<", ">1 ms<", ">0<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains(">99.999<") && !svg.contains("NaN") && !svg.contains("inf"));
        // The lowest time is at the left end, the highest at the right end, and nothing leaves the frame.
        let points = svg.split("points=\"").nth(1).unwrap();
        let points: Vec<f64> = points[..points.find('"').unwrap()]
            .split([' ', ','])
            .map(|one| one.parse().unwrap())
            .collect();
        for point in points.chunks(2) {
            assert!((LEFT..=WIDTH - RIGHT).contains(&point[0]), "{point:?}");
            assert!((TOP..=HEIGHT - BOTTOM).contains(&point[1]), "{point:?}");
        }
        assert!(points[1] > points[points.len() - 1]);
    }

    #[test]
    fn nothing_measured_draws_an_empty_frame() {
        let empty = spread::histogram().unwrap();
        let curve = Curve {
            name: "none",
            colour: "red",
            histogram: &empty,
        };
        let svg = draw("empty", &[curve]);
        assert!(svg.ends_with("</svg>\n") && !svg.contains("<polyline"));
    }
}
