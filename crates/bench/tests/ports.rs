//! Plots of the benchmark through ports, from a CSV file as `bench/ports/run.py` writes it.

use bench::ports;
use std::fs;

const HEADER: &str =
    "work,link,size,direction,round,middle,load,mpps,sent_mpps,gbps,latency_p50_us,latency_p99_us,latency_p999_us";

#[test]
fn each_workload_and_kind_of_ports_is_a_plot_and_latencies_are_another() {
    let folder = std::env::temp_dir().join(format!("sluice-bench-ports-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("below the temporary folder");
    let file = folder.join("ports.csv");
    let lines = [
        HEADER,
        "l2,vhost,64,bi,0,sluice,,9.5,12.0,6.4,,,",
        "l2,vhost,64,bi,1,sluice,,9.7,12.0,6.4,,,",
        "l2,vhost,imix,bi,0,ovs-dpdk,,4.25,12.0,6.4,,,",
        "l2,vhost,64,bi,0,sluice,0.1,0.9,0.9,0.6,11.5,30.0,1200",
        "l2,vhost,64,bi,0,ovs-dpdk,0.1,0.0,0.9,0.6,,,",
        "l2,packet,64,uni,0,sluice,,0.5,1.0,0.3,,,",
    ];
    fs::write(&file, lines.join("\r\n")).expect("the folder is there");
    let paths = ports::plots(&file, &folder.join("plots")).unwrap_or_else(|e| panic!("{e:#}"));
    let names: Vec<_> = paths.iter().map(|p| p.file_name().expect("a file").to_string_lossy()).collect();
    assert_eq!(names, ["ports-l2-vhost.svg", "ports-l2-vhost-latency.svg", "ports-l2-packet.svg"]);
    let text = |i: usize| fs::read_to_string(&paths[i]).expect("it was written");
    for word in ["64 bytes, both ways", "IMIX, both ways", "9.70", "4.25", "ovs-dpdk"] {
        assert!(text(0).contains(word), "no {word} in the rates");
    }
    assert!(text(1).contains("at 10 % of the own highest rate") && text(1).contains("11.5 / 30.0 / 1200"));
    assert!(text(2).contains("one way"));
    fs::write(&file, "work,link\nl2,vhost\n").expect("the folder is there");
    let error = ports::plots(&file, &folder).expect_err("columns are missing");
    assert!(format!("{error:#}").contains("there is no column `size`, only work, link"), "{error:#}");
    fs::remove_dir_all(folder).expect("it was made above");
}
