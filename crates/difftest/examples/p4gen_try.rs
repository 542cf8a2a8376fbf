fn main() {
    let args: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let mut bad = 0;
    for seed in args[0]..args[1] {
        let p = p4gen::program(seed, args[2] as u32);
        if args.len() > 3 { println!("{}\n{}", p.source, p.setup.join("\n")); }
        let t = std::time::Instant::now();
        let c = frontend::compile(frontend::Input::Text { name: "g.p4", text: &p.source }, &frontend::Options::default(), frontend::Until::Ir).unwrap();
        if c.failed() {
            bad += 1;
            let e: Vec<String> = c.diagnostics.iter().filter(|d| base::diag::has_errors(std::slice::from_ref(*d))).take(2).map(|d| d.render(&c.sources, false)).collect();
            println!("seed {seed}:\n{}", e.join("\n"));
        } else { println!("seed {seed} ok {} lines {:?} size {}", p.source.lines().count(), t.elapsed(), c.raw.map_or(0, |r| opt_size(&r))); }
    }
    println!("bad {bad}");
}
fn opt_size(p: &ir::Program) -> usize { p.stages.iter().flat_map(|s| &s.blocks).map(|b| b.insts.len() + 1).sum() }
