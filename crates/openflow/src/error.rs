//! Errors, and their types and codes in each version.
//!
//! [`ErrorKind`] unites the errors of OpenFlow 1.0 to 1.5, ONF's extensions and Nicira's, each named after its
//! constant; one table gives their numbers. An error that a version lacks is encoded as `NXBRC_UNENCODABLE_ERROR`, as
//! in Open vSwitch. Where a version has one number for several errors, all are encoded as it, and it is decoded as the
//! first of them.
//!
//! Sources: OpenFlow 1.0.0, 5.4.4; 1.3.5, 7.4.4; 1.4.1, 7.5.4; 1.5.1, 7.5.4; Open vSwitch for the extensions' numbers.

use std::fmt;

use crate::version::Version;

/// Nicira's experimenter id.
pub const NICIRA: u32 = 0x0000_2320;
/// The experimenter id of the Open Networking Foundation.
pub const ONF: u32 = 0x4f4e_4600;

/// Why a message, or a part of it, is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{kind}: {text}")]
pub struct Error {
    /// The error that the peer receives.
    pub kind: ErrorKind,
    /// Which field or action, and why; for logs.
    pub text: String,
}

impl Error {
    /// An error with its text for logs.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error { kind, text: text.into() }
    }
}

/// An error's numbers in one version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// OpenFlow's own: type and code.
    Standard(u16, u16),
    /// Nicira's in OpenFlow 1.0, which type 0xb0c2 announces: type and code.
    Vendor(u16, u16),
    /// An experimenter's (1.2 and later), which type 0xffff announces: experimenter id and experimenter type.
    Experimenter(u32, u16),
}

const fn of(kind: u16, code: u16) -> Option<Code> {
    Some(Code::Standard(kind, code))
}

const fn nx(kind: u16, code: u16) -> Option<Code> {
    Some(Code::Vendor(kind, code))
}

const fn exp(experimenter: u32, kind: u16) -> Option<Code> {
    Some(Code::Experimenter(experimenter, kind))
}

const NONE: Option<Code> = None;

macro_rules! errors {
    ($($kind:ident $name:literal $codes:expr,)*) => {
        /// The kind of an error, named after its constant in the specification.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum ErrorKind {
            $(#[doc = concat!("`", $name, "`.")] $kind,)*
            /// An unknown error, as it was received.
            Other(Code),
        }

        /// Each kind, its name and its numbers in each version of [`Version::ALL`].
        static TABLE: &[(ErrorKind, &str, [Option<Code>; 4])] = &[$((ErrorKind::$kind, $name, $codes),)*];
    };
}

impl ErrorKind {
    /// All known kinds.
    pub fn all() -> impl Iterator<Item = ErrorKind> {
        TABLE.iter().map(|row| row.0)
    }

    /// The name of its constant; `unknown` for an unknown error.
    pub fn name(self) -> &'static str {
        self.row().map_or("unknown", |row| row.1)
    }

    /// Its numbers in a version, or those of `NXBRC_UNENCODABLE_ERROR` if the version lacks it.
    pub fn code(self, version: Version) -> Code {
        self.own_code(version)
            .or_else(|| ErrorKind::NxbrcUnencodableError.own_code(version))
            .unwrap_or(Code::Standard(1, 1))
    }

    /// Its numbers in a version, if it has any.
    pub fn own_code(self, version: Version) -> Option<Code> {
        match self {
            ErrorKind::Other(code) => Some(code),
            _ => self.row().and_then(|row| row.2[column(version)]),
        }
    }

    /// The kind with these numbers in a version.
    pub fn numbered(version: Version, code: Code) -> ErrorKind {
        let row = TABLE.iter().find(|row| row.2[column(version)] == Some(code));
        row.map_or(ErrorKind::Other(code), |row| row.0)
    }

    fn row(self) -> Option<&'static (ErrorKind, &'static str, [Option<Code>; 4])> {
        TABLE.iter().find(|row| row.0 == self)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::Other(code) => write!(f, "unknown error {code:?}"),
            _ => f.write_str(self.name()),
        }
    }
}

fn column(version: Version) -> usize {
    Version::ALL.iter().position(|other| *other == version).unwrap_or(0)
}

#[rustfmt::skip]
errors! {
    // Kind                      Constant                               1.0                 1.3                 1.4                 1.5
    HfcIncompatible             "OFPHFC_INCOMPATIBLE"                 [of(0, 0),           of(0, 0),           of(0, 0),           of(0, 0)],
    HfcEperm                    "OFPHFC_EPERM"                        [of(0, 1),           of(0, 1),           of(0, 1),           of(0, 1)],
    BrcBadVersion               "OFPBRC_BAD_VERSION"                  [of(1, 0),           of(1, 0),           of(1, 0),           of(1, 0)],
    BrcBadType                  "OFPBRC_BAD_TYPE"                     [of(1, 1),           of(1, 1),           of(1, 1),           of(1, 1)],
    BrcBadStat                  "OFPBRC_BAD_STAT"                     [of(1, 2),           of(1, 2),           of(1, 2),           of(1, 2)],
    BrcBadExperimenter          "OFPBRC_BAD_EXPERIMENTER"             [of(1, 3),           of(1, 3),           of(1, 3),           of(1, 3)],
    BrcBadExpType               "OFPBRC_BAD_EXP_TYPE"                 [of(1, 4),           of(1, 4),           of(1, 4),           of(1, 4)],
    BrcEperm                    "OFPBRC_EPERM"                        [of(1, 5),           of(1, 5),           of(1, 5),           of(1, 5)],
    BrcBadLen                   "OFPBRC_BAD_LEN"                      [of(1, 6),           of(1, 6),           of(1, 6),           of(1, 6)],
    BrcBufferEmpty              "OFPBRC_BUFFER_EMPTY"                 [of(1, 7),           of(1, 7),           of(1, 7),           of(1, 7)],
    BrcBufferUnknown            "OFPBRC_BUFFER_UNKNOWN"               [of(1, 8),           of(1, 8),           of(1, 8),           of(1, 8)],
    BrcBadTableId               "OFPBRC_BAD_TABLE_ID"                 [nx(1, 512),         of(1, 9),           of(1, 9),           of(1, 9)],
    BrcIsSlave                  "OFPBRC_IS_SLAVE"                     [of(1, 5),           of(1, 10),          of(1, 10),          of(1, 10)],
    BrcBadPort                  "OFPBRC_BAD_PORT"                     [nx(1, 514),         of(1, 11),          of(1, 11),          of(1, 11)],
    BrcBadPacket                "OFPBRC_BAD_PACKET"                   [NONE,               of(1, 12),          of(1, 12),          of(1, 12)],
    BrcMultipartBufferOverflow  "OFPBRC_MULTIPART_BUFFER_OVERFLOW"    [NONE,               of(1, 13),          of(1, 13),          of(1, 13)],
    BrcMultipartRequestTimeout  "OFPBRC_MULTIPART_REQUEST_TIMEOUT"    [NONE,               exp(ONF, 2640),     of(1, 14),          of(1, 14)],
    BrcMultipartReplyTimeout    "OFPBRC_MULTIPART_REPLY_TIMEOUT"      [NONE,               exp(ONF, 2641),     of(1, 15),          of(1, 15)],
    BrcMultipartBadSched        "OFPBRC_MULTIPART_BAD_SCHED"          [NONE,               NONE,               NONE,               of(1, 16)],
    BrcPipelineFieldsOnly       "OFPBRC_PIPELINE_FIELDS_ONLY"         [NONE,               NONE,               NONE,               of(1, 17)],
    BrcUnknown                  "OFPBRC_UNKNOWN"                      [NONE,               NONE,               NONE,               of(1, 18)],
    NxbrcNxmInvalid             "NXBRC_NXM_INVALID"                   [nx(1, 256),         exp(NICIRA, 2),     exp(NICIRA, 2),     exp(NICIRA, 2)],
    NxbrcNxmBadType             "NXBRC_NXM_BAD_TYPE"                  [nx(1, 257),         exp(NICIRA, 3),     exp(NICIRA, 3),     exp(NICIRA, 3)],
    NxbrcMustBeZero             "NXBRC_MUST_BE_ZERO"                  [nx(1, 515),         exp(NICIRA, 4),     exp(NICIRA, 4),     exp(NICIRA, 4)],
    NxbrcBadReason              "NXBRC_BAD_REASON"                    [nx(1, 516),         exp(NICIRA, 5),     exp(NICIRA, 5),     exp(NICIRA, 5)],
    NxbrcFmBadEvent             "NXBRC_FM_BAD_EVENT"                  [nx(1, 520),         exp(NICIRA, 9),     exp(NICIRA, 9),     exp(NICIRA, 9)],
    NxbrcUnencodableError       "NXBRC_UNENCODABLE_ERROR"             [nx(1, 521),         exp(NICIRA, 10),    exp(NICIRA, 10),    exp(NICIRA, 10)],
    BacBadType                  "OFPBAC_BAD_TYPE"                     [of(2, 0),           of(2, 0),           of(2, 0),           of(2, 0)],
    BacBadLen                   "OFPBAC_BAD_LEN"                      [of(2, 1),           of(2, 1),           of(2, 1),           of(2, 1)],
    BacBadExperimenter          "OFPBAC_BAD_EXPERIMENTER"             [of(2, 2),           of(2, 2),           of(2, 2),           of(2, 2)],
    BacBadExpType               "OFPBAC_BAD_EXP_TYPE"                 [of(2, 3),           of(2, 3),           of(2, 3),           of(2, 3)],
    BacBadOutPort               "OFPBAC_BAD_OUT_PORT"                 [of(2, 4),           of(2, 4),           of(2, 4),           of(2, 4)],
    BacBadArgument              "OFPBAC_BAD_ARGUMENT"                 [of(2, 5),           of(2, 5),           of(2, 5),           of(2, 5)],
    BacEperm                    "OFPBAC_EPERM"                        [of(2, 6),           of(2, 6),           of(2, 6),           of(2, 6)],
    BacTooMany                  "OFPBAC_TOO_MANY"                     [of(2, 7),           of(2, 7),           of(2, 7),           of(2, 7)],
    BacBadQueue                 "OFPBAC_BAD_QUEUE"                    [of(2, 8),           of(2, 8),           of(2, 8),           of(2, 8)],
    BacBadOutGroup              "OFPBAC_BAD_OUT_GROUP"                [nx(2, 9),           of(2, 9),           of(2, 9),           of(2, 9)],
    BacMatchInconsistent        "OFPBAC_MATCH_INCONSISTENT"           [nx(1, 522),         of(2, 10),          of(2, 10),          of(2, 10)],
    BacUnsupportedOrder         "OFPBAC_UNSUPPORTED_ORDER"            [NONE,               of(2, 11),          of(2, 11),          of(2, 11)],
    BacBadTag                   "OFPBAC_BAD_TAG"                      [NONE,               of(2, 12),          of(2, 12),          of(2, 12)],
    BacBadSetType               "OFPBAC_BAD_SET_TYPE"                 [nx(1, 523),         of(2, 13),          of(2, 13),          of(2, 13)],
    BacBadSetLen                "OFPBAC_BAD_SET_LEN"                  [nx(1, 524),         of(2, 14),          of(2, 14),          of(2, 14)],
    BacBadSetArgument           "OFPBAC_BAD_SET_ARGUMENT"             [nx(1, 525),         of(2, 15),          of(2, 15),          of(2, 15)],
    BacBadSetMask               "OFPBAC_BAD_SET_MASK"                 [NONE,               exp(ONF, 4250),     exp(ONF, 4250),     of(2, 16)],
    BacBadMeter                 "OFPBAC_BAD_METER"                    [NONE,               NONE,               NONE,               of(2, 17)],
    NxbacMustBeZero             "NXBAC_MUST_BE_ZERO"                  [nx(2, 256),         exp(NICIRA, 11),    exp(NICIRA, 11),    exp(NICIRA, 11)],
    NxbacBadConjunction         "NXBAC_BAD_CONJUNCTION"               [nx(2, 526),         exp(NICIRA, 15),    exp(NICIRA, 15),    exp(NICIRA, 15)],
    NxbacBadHeaderType          "NXBAC_BAD_HEADER_TYPE"               [NONE,               exp(NICIRA, 39),    exp(NICIRA, 39),    exp(NICIRA, 39)],
    NxbacUnknownEdProp          "NXBAC_UNKNOWN_ED_PROP"               [NONE,               exp(NICIRA, 40),    exp(NICIRA, 40),    exp(NICIRA, 40)],
    NxbacBadEdProp              "NXBAC_BAD_ED_PROP"                   [NONE,               exp(NICIRA, 41),    exp(NICIRA, 41),    exp(NICIRA, 41)],
    NxbacCtDatapathSupport      "NXBAC_CT_DATAPATH_SUPPORT"           [nx(1, 265),         exp(NICIRA, 42),    exp(NICIRA, 42),    exp(NICIRA, 42)],
    BicUnknownInst              "OFPBIC_UNKNOWN_INST"                 [NONE,               of(3, 0),           of(3, 0),           of(3, 0)],
    BicUnsupInst                "OFPBIC_UNSUP_INST"                   [nx(2, 257),         of(3, 1),           of(3, 1),           of(3, 1)],
    BicBadTableId               "OFPBIC_BAD_TABLE_ID"                 [NONE,               of(3, 2),           of(3, 2),           of(3, 2)],
    BicUnsupMetadata            "OFPBIC_UNSUP_METADATA"               [NONE,               of(3, 3),           of(3, 3),           of(3, 3)],
    BicUnsupMetadataMask        "OFPBIC_UNSUP_METADATA_MASK"          [NONE,               of(3, 4),           of(3, 4),           of(3, 4)],
    BicBadExperimenter          "OFPBIC_BAD_EXPERIMENTER"             [NONE,               of(3, 5),           of(3, 5),           of(3, 5)],
    BicBadExpType               "OFPBIC_BAD_EXP_TYPE"                 [NONE,               of(3, 6),           of(3, 6),           of(3, 6)],
    BicBadLen                   "OFPBIC_BAD_LEN"                      [NONE,               of(3, 7),           of(3, 7),           of(3, 7)],
    BicEperm                    "OFPBIC_EPERM"                        [NONE,               of(3, 8),           of(3, 8),           of(3, 8)],
    BicDupInst                  "OFPBIC_DUP_INST"                     [NONE,               exp(ONF, 2600),     of(3, 9),           of(3, 9)],
    BmcBadType                  "OFPBMC_BAD_TYPE"                     [NONE,               of(4, 0),           of(4, 0),           of(4, 0)],
    BmcBadLen                   "OFPBMC_BAD_LEN"                      [NONE,               of(4, 1),           of(4, 1),           of(4, 1)],
    BmcBadTag                   "OFPBMC_BAD_TAG"                      [NONE,               of(4, 2),           of(4, 2),           of(4, 2)],
    BmcBadDlAddrMask            "OFPBMC_BAD_DL_ADDR_MASK"             [NONE,               of(4, 3),           of(4, 3),           of(4, 3)],
    BmcBadNwAddrMask            "OFPBMC_BAD_NW_ADDR_MASK"             [NONE,               of(4, 4),           of(4, 4),           of(4, 4)],
    BmcBadWildcards             "OFPBMC_BAD_WILDCARDS"                [nx(1, 262),         of(4, 5),           of(4, 5),           of(4, 5)],
    BmcBadField                 "OFPBMC_BAD_FIELD"                    [nx(0, 263),         of(4, 6),           of(4, 6),           of(4, 6)],
    BmcBadValue                 "OFPBMC_BAD_VALUE"                    [nx(1, 258),         of(4, 7),           of(4, 7),           of(4, 7)],
    BmcBadMask                  "OFPBMC_BAD_MASK"                     [nx(1, 259),         of(4, 8),           of(4, 8),           of(4, 8)],
    BmcBadPrereq                "OFPBMC_BAD_PREREQ"                   [nx(1, 260),         of(4, 9),           of(4, 9),           of(4, 9)],
    BmcDupField                 "OFPBMC_DUP_FIELD"                    [nx(1, 261),         of(4, 10),          of(4, 10),          of(4, 10)],
    BmcEperm                    "OFPBMC_EPERM"                        [NONE,               of(4, 11),          of(4, 11),          of(4, 11)],
    NxbmcCtDatapathSupport      "NXBMC_CT_DATAPATH_SUPPORT"           [nx(1, 264),         exp(NICIRA, 43),    exp(NICIRA, 43),    exp(NICIRA, 43)],
    FmfcUnknown                 "OFPFMFC_UNKNOWN"                     [NONE,               of(5, 0),           of(5, 0),           of(5, 0)],
    FmfcTableFull               "OFPFMFC_TABLE_FULL"                  [of(3, 0),           of(5, 1),           of(5, 1),           of(5, 1)],
    FmfcBadTableId              "OFPFMFC_BAD_TABLE_ID"                [NONE,               of(5, 2),           of(5, 2),           of(5, 2)],
    FmfcOverlap                 "OFPFMFC_OVERLAP"                     [of(3, 1),           of(5, 3),           of(5, 3),           of(5, 3)],
    FmfcEperm                   "OFPFMFC_EPERM"                       [of(3, 2),           of(5, 4),           of(5, 4),           of(5, 4)],
    FmfcBadTimeout              "OFPFMFC_BAD_TIMEOUT"                 [NONE,               of(5, 5),           of(5, 5),           of(5, 5)],
    FmfcBadEmergTimeout         "OFPFMFC_BAD_EMERG_TIMEOUT"           [of(3, 3),           NONE,               NONE,               NONE],
    FmfcBadCommand              "OFPFMFC_BAD_COMMAND"                 [of(3, 4),           of(5, 6),           of(5, 6),           of(5, 6)],
    FmfcBadFlags                "OFPFMFC_BAD_FLAGS"                   [nx(3, 258),         of(5, 7),           of(5, 7),           of(5, 7)],
    FmfcCantSync                "OFPFMFC_CANT_SYNC"                   [NONE,               NONE,               of(5, 8),           of(5, 8)],
    FmfcBadPriority             "OFPFMFC_BAD_PRIORITY"                [NONE,               exp(ONF, 2360),     of(5, 9),           of(5, 9)],
    FmfcIsSync                  "OFPFMFC_IS_SYNC"                     [NONE,               NONE,               of(5, 10),          of(5, 10)],
    FmfcUnsupported             "OFPFMFC_UNSUPPORTED"                 [of(3, 5),           NONE,               NONE,               NONE],
    NxfmfcHardware              "NXFMFC_HARDWARE"                     [nx(5, 256),         exp(NICIRA, 12),    exp(NICIRA, 12),    exp(NICIRA, 12)],
    NxfmfcBadTableId            "NXFMFC_BAD_TABLE_ID"                 [nx(5, 257),         exp(NICIRA, 13),    exp(NICIRA, 13),    exp(NICIRA, 13)],
    NxfmfcInvalidTlvField       "NXFMFC_INVALID_TLV_FIELD"            [nx(1, 536),         exp(NICIRA, 37),    exp(NICIRA, 37),    exp(NICIRA, 37)],
    GmfcGroupExists             "OFPGMFC_GROUP_EXISTS"                [nx(6, 0),           of(6, 0),           of(6, 0),           of(6, 0)],
    GmfcInvalidGroup            "OFPGMFC_INVALID_GROUP"               [nx(6, 1),           of(6, 1),           of(6, 1),           of(6, 1)],
    GmfcWeightUnsupported       "OFPGMFC_WEIGHT_UNSUPPORTED"          [nx(6, 2),           of(6, 2),           of(6, 2),           of(6, 2)],
    GmfcOutOfGroups             "OFPGMFC_OUT_OF_GROUPS"               [nx(6, 3),           of(6, 3),           of(6, 3),           of(6, 3)],
    GmfcOutOfBuckets            "OFPGMFC_OUT_OF_BUCKETS"              [nx(6, 4),           of(6, 4),           of(6, 4),           of(6, 4)],
    GmfcChainingUnsupported     "OFPGMFC_CHAINING_UNSUPPORTED"        [nx(6, 5),           of(6, 5),           of(6, 5),           of(6, 5)],
    GmfcWatchUnsupported        "OFPGMFC_WATCH_UNSUPPORTED"           [nx(6, 6),           of(6, 6),           of(6, 6),           of(6, 6)],
    GmfcLoop                    "OFPGMFC_LOOP"                        [nx(6, 7),           of(6, 7),           of(6, 7),           of(6, 7)],
    GmfcUnknownGroup            "OFPGMFC_UNKNOWN_GROUP"               [nx(6, 8),           of(6, 8),           of(6, 8),           of(6, 8)],
    GmfcChainedGroup            "OFPGMFC_CHAINED_GROUP"               [nx(6, 9),           of(6, 9),           of(6, 9),           of(6, 9)],
    GmfcBadType                 "OFPGMFC_BAD_TYPE"                    [nx(6, 10),          of(6, 10),          of(6, 10),          of(6, 10)],
    GmfcBadCommand              "OFPGMFC_BAD_COMMAND"                 [nx(6, 11),          of(6, 11),          of(6, 11),          of(6, 11)],
    GmfcBadBucket               "OFPGMFC_BAD_BUCKET"                  [nx(6, 12),          of(6, 12),          of(6, 12),          of(6, 12)],
    GmfcBadWatch                "OFPGMFC_BAD_WATCH"                   [nx(6, 13),          of(6, 13),          of(6, 13),          of(6, 13)],
    GmfcEperm                   "OFPGMFC_EPERM"                       [nx(6, 14),          of(6, 14),          of(6, 14),          of(6, 14)],
    GmfcUnknownBucket           "OFPGMFC_UNKNOWN_BUCKET"              [nx(6, 15),          NONE,               NONE,               of(6, 15)],
    GmfcBucketExists            "OFPGMFC_BUCKET_EXISTS"               [nx(6, 16),          NONE,               NONE,               of(6, 16)],
    PmfcBadPort                 "OFPPMFC_BAD_PORT"                    [of(4, 0),           of(7, 0),           of(7, 0),           of(7, 0)],
    PmfcBadHwAddr               "OFPPMFC_BAD_HW_ADDR"                 [of(4, 1),           of(7, 1),           of(7, 1),           of(7, 1)],
    PmfcBadConfig               "OFPPMFC_BAD_CONFIG"                  [NONE,               of(7, 2),           of(7, 2),           of(7, 2)],
    PmfcBadAdvertise            "OFPPMFC_BAD_ADVERTISE"               [NONE,               of(7, 3),           of(7, 3),           of(7, 3)],
    PmfcEperm                   "OFPPMFC_EPERM"                       [NONE,               of(7, 4),           of(7, 4),           of(7, 4)],
    TmfcBadTable                "OFPTMFC_BAD_TABLE"                   [NONE,               of(8, 0),           of(8, 0),           of(8, 0)],
    TmfcBadConfig               "OFPTMFC_BAD_CONFIG"                  [NONE,               of(8, 1),           of(8, 1),           of(8, 1)],
    TmfcEperm                   "OFPTMFC_EPERM"                       [NONE,               of(8, 2),           of(8, 2),           of(8, 2)],
    QofcBadPort                 "OFPQOFC_BAD_PORT"                    [of(5, 0),           of(9, 0),           of(9, 0),           of(9, 0)],
    QofcBadQueue                "OFPQOFC_BAD_QUEUE"                   [of(5, 1),           of(9, 1),           of(9, 1),           of(9, 1)],
    QofcEperm                   "OFPQOFC_EPERM"                       [of(5, 2),           of(9, 2),           of(9, 2),           of(9, 2)],
    NxqofcQueueError            "NXQOFC_QUEUE_ERROR"                  [NONE,               NONE,               exp(NICIRA, 23),    exp(NICIRA, 23)],
    ScfcBadFlags                "OFPSCFC_BAD_FLAGS"                   [NONE,               of(10, 0),          of(10, 0),          of(10, 0)],
    ScfcBadLen                  "OFPSCFC_BAD_LEN"                     [NONE,               of(10, 1),          of(10, 1),          of(10, 1)],
    ScfcEperm                   "OFPSCFC_EPERM"                       [NONE,               of(10, 2),          of(10, 2),          of(10, 2)],
    RrfcStale                   "OFPRRFC_STALE"                       [NONE,               of(11, 0),          of(11, 0),          of(11, 0)],
    RrfcUnsup                   "OFPRRFC_UNSUP"                       [NONE,               of(11, 1),          of(11, 1),          of(11, 1)],
    RrfcBadRole                 "OFPRRFC_BAD_ROLE"                    [nx(1, 513),         of(11, 2),          of(11, 2),          of(11, 2)],
    RrfcIdUnsup                 "OFPRRFC_ID_UNSUP"                    [NONE,               NONE,               NONE,               of(11, 3)],
    RrfcIdInUse                 "OFPRRFC_ID_IN_USE"                   [NONE,               NONE,               NONE,               of(11, 4)],
    MmfcUnknown                 "OFPMMFC_UNKNOWN"                     [NONE,               of(12, 0),          of(12, 0),          of(12, 0)],
    MmfcMeterExists             "OFPMMFC_METER_EXISTS"                [NONE,               of(12, 1),          of(12, 1),          of(12, 1)],
    MmfcInvalidMeter            "OFPMMFC_INVALID_METER"               [NONE,               of(12, 2),          of(12, 2),          of(12, 2)],
    MmfcUnknownMeter            "OFPMMFC_UNKNOWN_METER"               [NONE,               of(12, 3),          of(12, 3),          of(12, 3)],
    MmfcBadCommand              "OFPMMFC_BAD_COMMAND"                 [NONE,               of(12, 4),          of(12, 4),          of(12, 4)],
    MmfcBadFlags                "OFPMMFC_BAD_FLAGS"                   [NONE,               of(12, 5),          of(12, 5),          of(12, 5)],
    MmfcBadRate                 "OFPMMFC_BAD_RATE"                    [NONE,               of(12, 6),          of(12, 6),          of(12, 6)],
    MmfcBadBurst                "OFPMMFC_BAD_BURST"                   [NONE,               of(12, 7),          of(12, 7),          of(12, 7)],
    MmfcBadBand                 "OFPMMFC_BAD_BAND"                    [NONE,               of(12, 8),          of(12, 8),          of(12, 8)],
    MmfcBadBandValue            "OFPMMFC_BAD_BAND_VALUE"              [NONE,               of(12, 9),          of(12, 9),          of(12, 9)],
    MmfcOutOfMeters             "OFPMMFC_OUT_OF_METERS"               [NONE,               of(12, 10),         of(12, 10),         of(12, 10)],
    MmfcOutOfBands              "OFPMMFC_OUT_OF_BANDS"                [NONE,               of(12, 11),         of(12, 11),         of(12, 11)],
    TffcBadTable                "OFPTFFC_BAD_TABLE"                   [NONE,               of(13, 0),          of(13, 0),          of(13, 0)],
    TffcBadMetadata             "OFPTFFC_BAD_METADATA"                [NONE,               of(13, 1),          of(13, 1),          of(13, 1)],
    TffcEperm                   "OFPTFFC_EPERM"                       [NONE,               of(13, 5),          of(13, 5),          of(13, 5)],
    TffcBadCapa                 "OFPTFFC_BAD_CAPA"                    [NONE,               NONE,               NONE,               of(13, 6)],
    TffcBadMaxEnt               "OFPTFFC_BAD_MAX_ENT"                 [NONE,               NONE,               NONE,               of(13, 7)],
    TffcBadFeatures             "OFPTFFC_BAD_FEATURES"                [NONE,               NONE,               NONE,               of(13, 8)],
    TffcBadCommand              "OFPTFFC_BAD_COMMAND"                 [NONE,               NONE,               NONE,               of(13, 9)],
    TffcTooMany                 "OFPTFFC_TOO_MANY"                    [NONE,               NONE,               NONE,               of(13, 10)],
    NxtffcDupTable              "NXTFFC_DUP_TABLE"                    [NONE,               exp(NICIRA, 44),    exp(NICIRA, 44),    exp(NICIRA, 44)],
    BpcBadType                  "OFPBPC_BAD_TYPE"                     [nx(13, 2),          of(13, 2),          of(14, 0),          of(14, 0)],
    BpcBadLen                   "OFPBPC_BAD_LEN"                      [nx(13, 3),          of(13, 3),          of(14, 1),          of(14, 1)],
    BpcBadValue                 "OFPBPC_BAD_VALUE"                    [nx(13, 4),          of(13, 4),          of(14, 2),          of(14, 2)],
    BpcTooMany                  "OFPBPC_TOO_MANY"                     [nx(14, 3),          exp(ONF, 4443),     of(14, 3),          of(14, 3)],
    BpcDupType                  "OFPBPC_DUP_TYPE"                     [nx(14, 4),          exp(ONF, 4444),     of(14, 4),          of(14, 4)],
    BpcBadExperimenter          "OFPBPC_BAD_EXPERIMENTER"             [nx(14, 5),          exp(ONF, 4445),     of(14, 5),          of(14, 5)],
    BpcBadExpType               "OFPBPC_BAD_EXP_TYPE"                 [nx(14, 6),          exp(ONF, 4446),     of(14, 6),          of(14, 6)],
    BpcBadExpValue              "OFPBPC_BAD_EXP_VALUE"                [nx(14, 7),          exp(ONF, 4447),     of(14, 7),          of(14, 7)],
    BpcEperm                    "OFPBPC_EPERM"                        [nx(14, 8),          exp(ONF, 4448),     of(14, 8),          of(14, 8)],
    AcfcInvalid                 "OFPACFC_INVALID"                     [NONE,               exp(ONF, 2370),     of(15, 0),          of(15, 0)],
    AcfcUnsupported             "OFPACFC_UNSUPPORTED"                 [NONE,               exp(ONF, 2371),     of(15, 1),          of(15, 1)],
    AcfcEperm                   "OFPACFC_EPERM"                       [NONE,               exp(ONF, 2372),     of(15, 2),          of(15, 2)],
    BfcUnknown                  "OFPBFC_UNKNOWN"                      [NONE,               exp(ONF, 2300),     of(17, 0),          of(17, 0)],
    BfcEperm                    "OFPBFC_EPERM"                        [NONE,               exp(ONF, 2301),     of(17, 1),          of(17, 1)],
    BfcBadId                    "OFPBFC_BAD_ID"                       [NONE,               exp(ONF, 2302),     of(17, 2),          of(17, 2)],
    BfcBundleExist              "OFPBFC_BUNDLE_EXIST"                 [NONE,               exp(ONF, 2303),     of(17, 3),          of(17, 3)],
    BfcBundleClosed             "OFPBFC_BUNDLE_CLOSED"                [NONE,               exp(ONF, 2304),     of(17, 4),          of(17, 4)],
    BfcOutOfBundles             "OFPBFC_OUT_OF_BUNDLES"               [NONE,               exp(ONF, 2305),     of(17, 5),          of(17, 5)],
    BfcBadType                  "OFPBFC_BAD_TYPE"                     [NONE,               exp(ONF, 2306),     of(17, 6),          of(17, 6)],
    BfcBadFlags                 "OFPBFC_BAD_FLAGS"                    [NONE,               exp(ONF, 2307),     of(17, 7),          of(17, 7)],
    BfcMsgBadLen                "OFPBFC_MSG_BAD_LEN"                  [NONE,               exp(ONF, 2308),     of(17, 8),          of(17, 8)],
    BfcMsgBadXid                "OFPBFC_MSG_BAD_XID"                  [NONE,               exp(ONF, 2309),     of(17, 9),          of(17, 9)],
    BfcMsgUnsup                 "OFPBFC_MSG_UNSUP"                    [NONE,               exp(ONF, 2310),     of(17, 10),         of(17, 10)],
    BfcMsgConflict              "OFPBFC_MSG_CONFLICT"                 [NONE,               exp(ONF, 2311),     of(17, 11),         of(17, 11)],
    BfcMsgTooMany               "OFPBFC_MSG_TOO_MANY"                 [NONE,               exp(ONF, 2312),     of(17, 12),         of(17, 12)],
    BfcMsgFailed                "OFPBFC_MSG_FAILED"                   [NONE,               exp(ONF, 2313),     of(17, 13),         of(17, 13)],
    BfcTimeout                  "OFPBFC_TIMEOUT"                      [NONE,               exp(ONF, 2314),     of(17, 14),         of(17, 14)],
    BfcBundleInProgress         "OFPBFC_BUNDLE_IN_PROGRESS"           [NONE,               exp(ONF, 2315),     of(17, 15),         of(17, 15)],
    BfcSchedNotSupported        "OFPBFC_SCHED_NOT_SUPPORTED"          [NONE,               NONE,               NONE,               of(17, 16)],
    BfcSchedFuture              "OFPBFC_SCHED_FUTURE"                 [NONE,               NONE,               NONE,               of(17, 17)],
    BfcSchedPast                "OFPBFC_SCHED_PAST"                   [NONE,               NONE,               NONE,               of(17, 18)],
    BfcBadVersion               "OFPBFC_BAD_VERSION"                  [NONE,               NONE,               exp(NICIRA, 22),    exp(NICIRA, 22)],
    MofcUnknown                 "OFPMOFC_UNKNOWN"                     [NONE,               NONE,               of(16, 0),          of(16, 0)],
    MofcMonitorExists           "OFPMOFC_MONITOR_EXISTS"              [nx(1, 517),         exp(NICIRA, 6),     of(16, 1),          of(16, 1)],
    MofcInvalidMonitor          "OFPMOFC_INVALID_MONITOR"             [NONE,               NONE,               of(16, 2),          of(16, 2)],
    MofcUnknownMonitor          "OFPMOFC_UNKNOWN_MONITOR"             [nx(1, 519),         exp(NICIRA, 8),     of(16, 3),          of(16, 3)],
    MofcBadCommand              "OFPMOFC_BAD_COMMAND"                 [NONE,               NONE,               of(16, 4),          of(16, 4)],
    MofcBadFlags                "OFPMOFC_BAD_FLAGS"                   [nx(1, 518),         exp(NICIRA, 7),     of(16, 5),          of(16, 5)],
    MofcBadTableId              "OFPMOFC_BAD_TABLE_ID"                [NONE,               NONE,               of(16, 6),          of(16, 6)],
    MofcBadOut                  "OFPMOFC_BAD_OUT"                     [NONE,               NONE,               of(16, 7),          of(16, 7)],
    NxttmfcBadCommand           "NXTTMFC_BAD_COMMAND"                 [nx(1, 527),         exp(NICIRA, 16),    exp(NICIRA, 16),    exp(NICIRA, 16)],
    NxttmfcBadOptLen            "NXTTMFC_BAD_OPT_LEN"                 [nx(1, 528),         exp(NICIRA, 17),    exp(NICIRA, 17),    exp(NICIRA, 17)],
    NxttmfcBadFieldIdx          "NXTTMFC_BAD_FIELD_IDX"               [nx(1, 529),         exp(NICIRA, 18),    exp(NICIRA, 18),    exp(NICIRA, 18)],
    NxttmfcTableFull            "NXTTMFC_TABLE_FULL"                  [nx(1, 530),         exp(NICIRA, 19),    exp(NICIRA, 19),    exp(NICIRA, 19)],
    NxttmfcAlreadyMapped        "NXTTMFC_ALREADY_MAPPED"              [nx(1, 531),         exp(NICIRA, 20),    exp(NICIRA, 20),    exp(NICIRA, 20)],
    NxttmfcDupEntry             "NXTTMFC_DUP_ENTRY"                   [nx(1, 532),         exp(NICIRA, 21),    exp(NICIRA, 21),    exp(NICIRA, 21)],
    NxttmfcInvalidTlvDel        "NXTTMFC_INVALID_TLV_DEL"             [nx(1, 537),         exp(NICIRA, 38),    exp(NICIRA, 38),    exp(NICIRA, 38)],
    NxrNotSupported             "NXR_NOT_SUPPORTED"                   [nx(1, 533),         exp(NICIRA, 34),    exp(NICIRA, 34),    exp(NICIRA, 34)],
    NxrStale                    "NXR_STALE"                           [nx(1, 534),         exp(NICIRA, 35),    exp(NICIRA, 35),    exp(NICIRA, 35)],
    NxstNotConfigured           "NXST_NOT_CONFIGURED"                 [nx(1, 535),         exp(NICIRA, 36),    exp(NICIRA, 36),    exp(NICIRA, 36)],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_read_as_it_is_written() {
        for version in Version::ALL {
            for kind in ErrorKind::all() {
                let Some(code) = kind.own_code(version) else { continue };
                let read = ErrorKind::numbered(version, code);
                // OpenFlow 1.0 has one number for both.
                let shared = version == Version::V10 && kind == ErrorKind::BrcIsSlave;
                assert_eq!(read, if shared { ErrorKind::BrcEperm } else { kind }, "{version:?}");
            }
        }
    }

    #[test]
    fn what_a_version_lacks_is_said_in_general() {
        let table = ErrorKind::BicUnknownInst;
        assert_eq!(table.code(Version::V10), Code::Vendor(1, 521));
        assert_eq!(table.code(Version::V13), Code::Standard(3, 0));
        assert_eq!(ErrorKind::FmfcUnsupported.code(Version::V13), Code::Experimenter(NICIRA, 10));
    }

    #[test]
    fn numbers_follow_the_specifications() {
        let cases = [
            (ErrorKind::FmfcOverlap, [of(3, 1), of(5, 3), of(5, 3), of(5, 3)]),
            (ErrorKind::PmfcBadHwAddr, [of(4, 1), of(7, 1), of(7, 1), of(7, 1)]),
            (ErrorKind::BfcBadId, [None, exp(ONF, 2302), of(17, 2), of(17, 2)]),
            (ErrorKind::BpcBadType, [nx(13, 2), of(13, 2), of(14, 0), of(14, 0)]),
            (ErrorKind::RrfcStale, [None, of(11, 0), of(11, 0), of(11, 0)]),
        ];
        for (kind, codes) in cases {
            assert_eq!(Version::ALL.map(|version| kind.own_code(version)), codes, "{kind}");
        }
    }

    #[test]
    fn an_unknown_error_keeps_its_numbers() {
        let code = Code::Experimenter(0x0010_2030, 7);
        assert_eq!(ErrorKind::numbered(Version::V15, code), ErrorKind::Other(code));
        assert_eq!(ErrorKind::Other(code).code(Version::V15), code);
    }
}
