parser P(inout bit<8> x);
control C(inout bit<8> x);
package Top(P p, C c);
control only(inout bit<8> x) { apply { } }
Top(only(), only()) main;
