use crate::{DeviceSpec, MemifRole, PortSpec};
use proptest::prelude::*;

fn port(text: &str) -> PortSpec {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> String {
    match text.parse::<PortSpec>() {
        Ok(port) => panic!("`{text}` parses as {port:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn each_form_parses() {
    let device = DeviceSpec::AfPacket { interface: "veth0".into() };
    let plain = PortSpec {
        number: 0,
        device,
        mtu: None,
        queues: None,
        descriptors: None,
        memory_mb: None,
        spread: false,
        isolated: false,
        up: false,
    };
    assert_eq!(port("0@veth0"), plain);
    assert_eq!(port("0@veth0,queues=2,mtu=9000"), PortSpec { mtu: Some(9000), queues: Some(2), ..plain.clone() });
    assert_eq!(port("0@veth0,spread"), PortSpec { spread: true, ..plain.clone() });
    assert_eq!(port("0@veth0,up"), PortSpec { up: true, ..plain });
    let pcap = port("0@pcap:in,out,spread");
    assert!(pcap.spread && pcap.device.to_string() == "pcap:in,out", "{pcap}");
    assert_eq!(port("1@vhost:/run/vm1.sock").device, DeviceSpec::Vhost { path: "/run/vm1.sock".into(), server: false });
    assert_eq!(port("1@vhost-server:a.sock").device, DeviceSpec::Vhost { path: "a.sock".into(), server: true });
    assert_eq!(port("1@virtio:/v").device, DeviceSpec::Virtio { path: "/v".into(), server: false });
    assert_eq!(port("1@virtio-server:/v").device, DeviceSpec::Virtio { path: "/v".into(), server: true });
    assert_eq!(
        port("1@memif:/run/m.sock,id=7,role=server").device,
        DeviceSpec::Memif { path: "/run/m.sock".into(), id: 7, role: MemifRole::Server }
    );
    assert_eq!(
        port("1@memif:/run/m.sock").device,
        DeviceSpec::Memif { path: "/run/m.sock".into(), id: 0, role: MemifRole::Client }
    );
    assert_eq!(port("2@xdp:eth0").device, DeviceSpec::Xdp { interface: "eth0".into() });
    assert_eq!(port("2@tap:tap0").device, DeviceSpec::Tap { interface: "tap0".into() });
    assert_eq!(port("3@pci:0000:03:00.0").device, DeviceSpec::Pci { address: "0000:03:00.0".into() });
    assert_eq!(port("3@pci:03:00.1").device, DeviceSpec::Pci { address: "03:00.1".into() });
    assert_eq!(
        port("4@pcap:in.pcap,out.pcap").device,
        DeviceSpec::Pcap { input: "in.pcap".into(), output: Some("out.pcap".into()), after_s: 0 }
    );
    assert_eq!(port("4@pcap:in.pcap").device, DeviceSpec::Pcap { input: "in.pcap".into(), output: None, after_s: 0 });
    assert_eq!(port("65534@memory").device, DeviceSpec::Memory);
    assert_eq!(port("5@null").device, DeviceSpec::Null);
    assert_eq!(port("5@ring:r0").device, DeviceSpec::Ring { name: "r0".into() });
}

#[test]
fn printing_and_parsing_are_inverse() {
    for text in [
        "0@veth0",
        "1@vhost:/a",
        "1@vhost-server:/a",
        "1@virtio:/a",
        "1@virtio-server:/a",
        "1@memif:/m,id=3,role=client",
        "2@xdp:e",
        "2@tap:t",
        "3@pci:03:00.0",
        "4@pcap:i,o",
        "4@pcap:i",
        "4@pcap:i,after=3",
        "4@pcap:i,o,after=3",
        "5@memory",
        "5@null",
        "5@ring:r",
        "7@xdp:e,mtu=1500,up,spread",
        "6@memif:/m,id=1,role=server,mtu=1500,queues=4,descriptors=4096,spread",
        "6@memif:/m,id=1,role=client,isolated",
        "1@vhost:/a,memory=64,isolated,spread",
    ] {
        assert_eq!(port(text).to_string(), text);
    }
}

#[test]
fn errors_name_what_is_wrong() {
    for (text, part) in [
        ("veth0", "port number is missing"),
        ("x@veth0", "`x` is not a port number"),
        ("+1@veth0", "`+1` is not a port number"),
        ("65535@veth0", "from 0 to 65534"),
        ("99999999999@veth0", "not a port number"),
        ("0@", "device is missing"),
        ("0@averyverylongname", "longer than 15 bytes"),
        (
            "0@veth0,queue=2",
            "`queue=2` is no option of a port of kind af_packet; there are mtu=N, queues=N, spread, up",
        ),
        ("0@vhost:/v,up", "`up` does not fit a port of kind vhost"),
        ("0@memory,mtu=1500", "`mtu=` does not fit a port of kind memory"),
        ("0@pcap:a,b,mtu=1500", "`mtu=` does not fit a port of kind pcap"),
        (
            "0@xdp:eth0,mtu=1500,foo",
            "`foo` is no option of a port of kind xdp; there are mtu=N, queues=N, spread, descriptors=N, up",
        ),
        ("0@veth0,queues=0", "from 1 to 64"),
        ("0@xdp:veth0,descriptors=63", "from 64 to 32768"),
        ("0@vhost:/v,descriptors=512", "does not fit a port of kind vhost"),
        ("0@veth0,mtu=67", "from 68 to 65000"),
        ("0@vhost:/v,mtu=x", "`mtu=x`: a number"),
        ("0@veth0,mtu=1500,queues=1,mtu=1500", "`mtu=1500` is there twice"),
        ("0@vhost", "needs an argument"),
        ("0@vhost:", "socket path is missing"),
        ("0@vhost:/a,b", "`b` is no option of a port of kind vhost"),
        ("0@memif:/m,id=x", "`x` is not a number"),
        ("0@memif:/m,role=master", "neither `server` nor `client`"),
        ("0@memif:/m,mut=1", "no option `mut=1`"),
        ("0@xdp:", "interface name is missing"),
        ("0@pci:3", "not a PCI address"),
        ("0@pci:0000:03:00.9", "not a PCI address"),
        ("0@pcap:", "input file is missing"),
        ("0@pcap:a,", "output file is missing"),
        ("0@pcap:a,b,c", "more than two files"),
        ("0@memory:x", "takes no argument"),
        ("0@dpdk:x", "`dpdk` is not a kind of device"),
    ] {
        let message = error(text);
        assert!(message.contains(part), "`{text}`: {message}");
        assert!(message.contains(text), "the text itself is in {message}");
    }
    let long = format!("0@vhost:/{}", "x".repeat(107));
    assert!(error(&long).contains("limit is 107"));
    assert!("0@nope:x".parse::<PortSpec>().unwrap_err().help().contains("memif:PATH"));
}

#[test]
fn options_can_be_changed_one_by_one() {
    let with = |text: &str, options: &[&str]| port(text).with_options(options).map(|port| port.to_string());
    assert_eq!(with("1@veth0,mtu=1500", &["mtu=9000", "spread"]), Ok("1@veth0,mtu=9000,spread".into()));
    assert_eq!(with("1@veth0,mtu=9000,up,spread", &["mtu=default", "up=default"]), Ok("1@veth0,spread".into()));
    assert!(with("1@veth0", &["mut=9000"]).unwrap_err().to_string().contains("`mut=9000` is no option"));
    assert!(with("1@memif:/m", &["id=5"]).unwrap_err().to_string().contains("cannot be changed"));
    assert!(with("1@memif:/m", &["mtu=x"]).unwrap_err().to_string().contains("a number from"));
}

proptest! {
    #[test]
    fn any_text_parses_or_is_refused_and_what_parses_prints_back(text in "[0-9]{0,3}@?[a-z]{0,6}[:@,=./ -]{0,2}.{0,12}") {
        if let Ok(port) = text.parse::<PortSpec>() {
            prop_assert_eq!(port.to_string().parse::<PortSpec>().unwrap(), port);
        }
    }
}

#[test]
fn ports_that_share_memory_can_be_isolated() {
    assert!(port("1@vhost-server:/a,isolated").isolated && !port("1@vhost-server:/a").isolated);
    let set = port("1@vhost:/a,mtu=1500").with_options(&["isolated"]).expect("it fits");
    assert!(set.isolated && set.mtu == Some(1500));
    assert!(!set.with_options(&["isolated=default"]).expect("it fits").isolated);
    for other in ["0@veth0,isolated", "1@virtio:/v,isolated", "5@memory,isolated"] {
        assert!(error(other).contains("`isolated` does not fit a port of kind"), "{}", error(other));
    }
    assert!(error("1@vhost:/a,isolate").contains("spread, memory=MB, isolated"), "{}", error("1@vhost:/a,isolate"));
}

#[test]
fn memory_that_others_share_has_a_limit_in_megabytes() {
    for text in
        ["1@vhost-server:/a,memory=4096", "1@memif:/a,id=0,role=server,memory=1", "1@vhost:/a,queues=2,memory=1048576"]
    {
        let spec = port(text);
        assert!(spec.memory_mb.is_some());
        assert_eq!(spec.to_string().parse(), Ok(spec));
    }
    assert_eq!(port("1@vhost:/a").memory_mb, None);
    for (text, why) in [
        ("1@vhost:/a,memory=0", "megabytes from 1"),
        ("1@vhost:/a,memory=4G", "megabytes from 1"),
        ("1@vhost:/a,memory=1,memory=2", "there twice"),
        ("1@veth0,memory=1", "does not fit"),
        ("1@memif:/a,memory=1", "does not fit"),
    ] {
        let error = text.parse::<PortSpec>().expect_err(text).to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}
