//! Values at the edge of what a field can be, and beyond.

use prost::Message as _;

/// Of 0001-01-01, a leap day, 9999-12-31, and what lies beyond; of now, roughly.
pub const INSTANTS: [i64; 9] =
    [-62_135_596_800, -62_135_596_801, 951_782_400, 1_709_164_800, 253_402_300_799, 253_402_300_800, 0, -1, 4_102_444_800];

pub const NUMBERS: [i64; 26] = [
    0,
    1,
    -1,
    59,
    60,
    61,
    1_000,
    1_001,
    10_000,
    10_001,
    i32::MAX as i64,
    i32::MAX as i64 + 1,
    i32::MIN as i64,
    u32::MAX as i64,
    u32::MAX as i64 + 1,
    31_622_400,
    31_622_401,
    315_576_000_000,
    315_576_000_001,
    -62_135_596_800,
    253_402_300_799,
    253_402_300_800,
    1 << 53,
    1 << 62,
    i64::MAX,
    i64::MIN,
];

pub const DOUBLES: [f64; 16] = [
    0.0,
    -0.0,
    0.01,
    0.009,
    1_000.0,
    1_000.1,
    1e-13,
    1e-300,
    f64::MIN_POSITIVE,
    5e-324,
    f64::EPSILON,
    f64::MAX,
    f64::MIN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

/// Texts of every kind that are names as good as any, each not longer than 256 bytes.
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = [
        "e\u{301}\u{323}",
        // The same to the eye as the one that is composed: another name all the same.
        "\u{e9}",
        "\u{202e}abc\u{202c} שלום مرحبا",
        "a\u{200b}\u{200d}\u{2060}\u{ad}b",
        "👩‍👩‍👧‍👦🏴󠁧󠁢󠁥󠁮󠁧󠁿🛎️",
        "\u{feff}bom",
        "\u{fffe}\u{ffff}\u{fffd}\u{10ffff}\u{e000}",
        "\u{1}\u{7f}\u{80}\u{9f}\t\r\n\u{2028}\u{2029}",
        "'; DROP TABLE tasks; -- \"\\\\ \\u0000 $1 %s %_ {} {a,b} NULL",
        " ",
        "..",
        "=",
        ">",
        "İıſẞﬃ㎏",
    ]
    .map(str::to_owned)
    .into();
    // 256 bytes, the last of them the last of a character; and one byte less, so that the next character would not fit.
    names.push("é".repeat(128));
    names.push("🛎".repeat(64));
    names.push(format!("{}x", "語".repeat(85)));
    names.push("漢".repeat(85));
    names
}

/// Bytes that are no text: half of a surrogate pair, an overlong NUL, a byte that never is, a character cut off, one beyond Unicode.
pub const NO_TEXTS: [&[u8]; 5] = [&[0xed, 0xa0, 0x80], &[0xc0, 0x80], &[0xff], &[b'a', 0xe2, 0x82], &[0xf4, 0x90, 0x80, 0x80]];

/// All of them, good and bad, and what other fields hold.
pub fn texts() -> Vec<Vec<u8>> {
    let mut texts: Vec<Vec<u8>> = names().into_iter().map(String::into_bytes).collect();
    texts.extend(NO_TEXTS.map(<[u8]>::to_vec));
    texts.extend(
        [
            "",
            "a\0b",
            "\0",
            "c1-0",
            "c1-9223372036854775807",
            "9223372036854775807",
            "-2147483648",
            "2147483647",
            "-300000000000000000.01890a5d-ac96-774b-bcce-b302099a8057",
            "9223372036854775807.01890a5d-ac96-774b-bcce-b302099a8057",
            "01890a5d-ac96-774b-bcce-b302099a8057",
            "{01890a5d-ac96-774b-bcce-b302099a8057}",
            "00000000-0000-0000-0000-000000000000",
            "max_in_flight",
        ]
        .map(|text| text.as_bytes().to_vec()),
    );
    for length in [257, 1_024, 1_025, 4_096, 4_097, 70_000] {
        texts.push(vec![b'x'; length]);
        texts.push("é".repeat(length / 2 + 1).into_bytes());
    }
    texts
}

/// Spans to wait for, encoded: none that takes long, and some that are none.
pub fn waits() -> Vec<Vec<u8>> {
    let spans = [(0, 0), (0, 1), (0, 1_000_000), (-1, 0), (0, -1), (1, -1), (61, 0), (60, 1), (i64::MAX, 0), (0, i32::MIN)];
    spans.map(|(seconds, nanos)| prost_types::Duration { seconds, nanos }.encode_to_vec()).into()
}
