//! `docs/METRICS.md` lists exactly the metrics that there are, in the words of the code.

use lockgate_providers::metrics::{METRICS, Shape};

#[test]
fn the_page_lists_exactly_the_metrics_that_there_are() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/METRICS.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `lockgate_"))
        .collect();
    let expected: Vec<String> = METRICS
        .iter()
        .map(|metric| {
            let shape = match metric.shape {
                Shape::Counter => "counter",
                Shape::Gauge => "gauge",
                Shape::Histogram => "histogram",
                _ => panic!("{:?} has no word on the page", metric.shape),
            };
            let labels: Vec<_> = metric
                .labels
                .iter()
                .map(|one| format!(" `{one}`"))
                .collect();
            format!(
                "| `{}` | {shape} | {} |{} | {} |",
                metric.name,
                metric.unit.as_str(),
                labels.join(","),
                metric.meaning
            )
        })
        .collect();
    assert_eq!(rows, expected);
}
