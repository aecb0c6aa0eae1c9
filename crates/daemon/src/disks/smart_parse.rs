//! The answer of `smartctl --json -a`, which comes from a program, and through it from a disk: nothing in it is assumed to be of
//! any length or kind.

use dolmen_api::Smart;
use serde_json::Value;

/// The longest answer that is looked at. Those of disks with thousands of hours of history have some 100 KiB.
pub(crate) const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The longest text that is kept.
const TEXT_MAX: usize = 80;
/// Attributes of ATA disks.
const REALLOCATED: u64 = 5;
const PENDING: u64 = 197;
const UNCORRECTABLE: u64 = 198;
/// Makers put other things above the count in the 48 bits of an attribute.
const COUNT_BITS: u64 = 0xffff_ffff;

/// What an answer says; or why nothing is known, in words.
pub(crate) fn parse(answer: &[u8]) -> Result<Smart, String> {
    if answer.len() > ANSWER_BYTES_MAX {
        return Err(format!("smartctl's answer is longer than {ANSWER_BYTES_MAX} bytes"));
    }
    let json: Value = serde_json::from_slice(answer)
        .map_err(|error| format!("smartctl's answer makes no sense: {}", text(&error.to_string())))?;
    if !json.is_object() {
        return Err("smartctl's answer makes no sense: it is no object".to_owned());
    }
    let smart = Smart {
        passed: json.pointer("/smart_status/passed").and_then(Value::as_bool),
        model: text_at(&json, "/model_name"),
        serial: text_at(&json, "/serial_number"),
        temperature_c: json.pointer("/temperature/current").and_then(Value::as_i64).filter(is_temperature),
        power_on_hours: number_at(&json, "/power_on_time/hours"),
        reallocated_sectors: attribute(&json, REALLOCATED)
            .or_else(|| number_at(&json, "/scsi_grown_defect_list")),
        pending_sectors: attribute(&json, PENDING),
        uncorrectable_sectors: attribute(&json, UNCORRECTABLE)
            .or_else(|| number_at(&json, "/scsi_error_counter_log/read/total_uncorrected_errors")),
        critical_warning: number_at(&json, "/nvme_smart_health_information_log/critical_warning"),
        percentage_used: number_at(&json, "/nvme_smart_health_information_log/percentage_used"),
        media_errors: number_at(&json, "/nvme_smart_health_information_log/media_errors"),
    };
    let named_alone = Smart { model: smart.model.clone(), serial: smart.serial.clone(), ..Smart::default() };
    if smart == named_alone {
        let stated = json.pointer("/smartctl/messages/0/string").and_then(Value::as_str).map(text);
        return Err(stated.map_or_else(
            || "smartctl says nothing of it".to_owned(),
            |stated| format!("smartctl says: {stated}"),
        ));
    }
    Ok(smart)
}

/// What a disk can be told to have and work.
fn is_temperature(degrees: &i64) -> bool {
    (-100..=200).contains(degrees)
}

fn number_at(json: &Value, at: &str) -> Option<u64> {
    json.pointer(at).and_then(Value::as_u64).map(|number| number.min(COUNT_BITS))
}

fn attribute(json: &Value, id: u64) -> Option<u64> {
    let table = json.pointer("/ata_smart_attributes/table")?.as_array()?;
    let found = table.iter().find(|entry| entry.get("id").and_then(Value::as_u64) == Some(id))?;
    found.pointer("/raw/value").and_then(Value::as_u64).map(|raw| raw & COUNT_BITS)
}

fn text_at(json: &Value, at: &str) -> Option<String> {
    json.pointer(at).and_then(Value::as_str).map(text).filter(|text| !text.is_empty())
}

/// A text in one line of letters that a terminal shows, and no longer than is kept.
fn text(text: &str) -> String {
    let shown = text.chars().map(|one| if one.is_control() { ' ' } else { one }).take(TEXT_MAX);
    shown.collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATA: &str = r#"{"json_format_version":[1,0],"model_name":"Disk\u001b[31m 3000","serial_number":"Z1",
        "smart_status":{"passed":true},"temperature":{"current":38},"power_on_time":{"hours":40123},
        "ata_smart_attributes":{"revision":10,"table":[
            {"id":1,"name":"Raw_Read_Error_Rate","raw":{"value":12,"string":"12"}},
            {"id":5,"name":"Reallocated_Sector_Ct","raw":{"value":281474976710664,"string":"8"}},
            {"id":197,"name":"Current_Pending_Sector","raw":{"value":3}},
            {"id":198,"name":"Offline_Uncorrectable","raw":{"value":2}}]}}"#;
    const NVME: &str = r#"{"model_name":"Stick","smart_status":{"passed":true,"nvme":{"value":0}},
        "nvme_smart_health_information_log":{"critical_warning":4,"temperature":41,"available_spare":100,
            "percentage_used":104,"media_errors":7},"temperature":{"current":41}}"#;

    #[test]
    fn what_matters_is_found_in_the_answers_for_ata_and_nvme() {
        let ata = parse(ATA.as_bytes()).unwrap();
        assert_eq!(ata.model.as_deref(), Some("Disk [31m 3000"), "no control characters reach a terminal");
        assert_eq!((ata.passed, ata.temperature_c, ata.power_on_hours), (Some(true), Some(38), Some(40123)));
        let sectors = [ata.reallocated_sectors, ata.pending_sectors, ata.uncorrectable_sectors];
        assert_eq!(sectors, [Some(8), Some(3), Some(2)]);
        assert!(!ata.is_failing() && ata.defects() == 13);
        let nvme = parse(NVME.as_bytes()).unwrap();
        assert_eq!(
            (nvme.critical_warning, nvme.percentage_used, nvme.media_errors),
            (Some(4), Some(104), Some(7))
        );
        assert!(nvme.is_failing(), "a disk that says it is unreliable fails, whatever else it says");
        let warm = NVME.replace("\"critical_warning\":4", "\"critical_warning\":2");
        assert!(!parse(warm.as_bytes()).unwrap().is_failing(), "one that is too warm does not");
        let many = NVME.replace("\"media_errors\":7", "\"media_errors\":18446744073709551615");
        assert_eq!(parse(many.as_bytes()).unwrap().media_errors, Some(COUNT_BITS));
        let failed = ATA.replace("\"passed\":true", "\"passed\":false");
        assert!(parse(failed.as_bytes()).unwrap().is_failing());
    }

    /// Scenario: answers that are none, are torn, are of other kinds, too deep or too long. Each is told in a line, and none breaks
    /// anything.
    #[test]
    fn invalid_answers_are_reported_in_one_line() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let long = format!("{{\"model_name\":\"{}\"}}", "x".repeat(ANSWER_BYTES_MAX));
        let cases: [(&str, &str); 9] = [
            ("", "makes no sense"),
            ("\u{0}\u{1}garbage", "makes no sense"),
            (&ATA[..ATA.len() / 2], "makes no sense"),
            ("[]", "no object"),
            ("{}", "says nothing"),
            (r#"{"smart_status":{"passed":"no"},"temperature":{"current":4e9}}"#, "says nothing"),
            (
                r#"{"smartctl":{"messages":[{"string":"Unable to detect\n device type","severity":"error"}]}}"#,
                "Unable to detect  device type",
            ),
            (&deep, "makes no sense"),
            (&long, "longer than"),
        ];
        for (answer, expected) in cases {
            let why = parse(answer.as_bytes()).unwrap_err();
            assert!(why.contains(expected) && why.len() < 200 && !why.contains('\n'), "{why}");
        }
    }
}
