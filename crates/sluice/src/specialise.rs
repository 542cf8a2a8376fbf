//! `--specialise`: what machine code is specialised for; it is always right for all table contents.

/// What code may be made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Specialise {
    /// Nothing: one code for all tables.
    Off,
    /// Addresses, sizes and default entries of the tables as they are.
    Constants,
    /// Also the entries of tiny tables.
    Contents,
    /// As contents; tables that change often are left out.
    Auto,
}

impl From<Specialise> for datapath::Specialise {
    fn from(mode: Specialise) -> datapath::Specialise {
        match mode {
            Specialise::Off => datapath::Specialise::Off,
            Specialise::Constants => datapath::Specialise::Constants,
            Specialise::Contents => datapath::Specialise::Contents,
            Specialise::Auto => datapath::Specialise::Auto,
        }
    }
}

impl Specialise {
    /// Returns a description for the title of a row.
    pub fn describe(self) -> &'static str {
        match self {
            Specialise::Off => "machine code, for any tables",
            Specialise::Constants => "machine code, constants",
            Specialise::Contents | Specialise::Auto => "machine code, contents",
        }
    }
}
