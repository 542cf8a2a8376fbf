control C(inout bit<8> x);
package Top(C c);
control wide(inout bit<16> x) { apply { } }
Top(wide()) main;
