// What p4c accepts beyond the specification's grammar.
extern late;
const bit<8> table_size[2] = { 1, 2 };
control c(inout bit<8> x[4]) {
    bit<8> local[3][2];
    apply {
        late() instance;
        x[0] = (bit<8>) 1;
    }
}
