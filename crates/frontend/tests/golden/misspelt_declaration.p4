header ehternet_t { bit<48> dst; bit<48> src; }
struct headers_t { ethernet_t outer; ethernet_t inner; }
control c(inout headers_t hdr, inout ethernet_t e) {
    apply { hdr.outer.dst = hdr.inner.src; }
}
