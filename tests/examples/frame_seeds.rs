//! Writes generated frames as seeds for the fuzz target `frame` into the folder given: `frame_seeds FOLDER [COUNT]`.
//!
//! Promises: the same files each time. Does not do: choosing among them; libFuzzer's `-merge=1` does.

use lockgate_tests::frames::{Random, corpus};

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let Some(folder) = args.next() else {
        eprintln!("usage: frame_seeds FOLDER [COUNT]");
        std::process::exit(2);
    };
    let count = args
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(500);
    let mut random = Random::new(7);
    for (number, sample) in corpus(&mut random, count).into_iter().enumerate() {
        // The first octet chooses policy and entry.
        let mut input = vec![random.bits() as u8 & 0x7f];
        input.extend(sample.bytes);
        std::fs::write(format!("{folder}/{number:05}"), input)?;
    }
    Ok(())
}
