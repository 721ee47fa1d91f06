//! The devices that the user sees, and their order: `TORCH_OPENCL_DEVICES`.

use std::env::{self, VarError};

use crate::cl::{DeviceInfo, DeviceType};
use crate::error::{Error, Result};

/// The value of `TORCH_OPENCL_DEVICES`, if it is set.
pub(super) fn device_filter() -> Result<Option<String>> {
    match env::var("TORCH_OPENCL_DEVICES") {
        Ok(filter) => Ok(Some(filter)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(raw)) => {
            Err(Error::NoDevice(format!("TORCH_OPENCL_DEVICES={} is not valid UTF-8.", raw.to_string_lossy())))
        }
    }
}

/// GPUs first, CPUs last, in the order of the drivers; then the entries of the filter, in its order.
///
/// The filter is a comma-separated list of indices into that order, of types (`gpu`, `cpu`, `accelerator`), or of
/// parts of a device's or platform's name. As with `CUDA_VISIBLE_DEVICES`, an unknown entry ends the list.
pub(super) fn select(mut all: Vec<DeviceInfo>, filter: Option<&str>) -> Result<Vec<DeviceInfo>> {
    all.sort_by_key(|info| info.device_type);
    let Some(filter) = filter else { return Ok(all) };
    let mut chosen: Vec<DeviceInfo> = Vec::new();
    for entry in filter.split(',').map(|entry| entry.trim().to_lowercase()).filter(|entry| !entry.is_empty()) {
        let matches: Vec<&DeviceInfo> = match entry.parse::<usize>() {
            Ok(index) => all.get(index).into_iter().collect(),
            Err(_) => all.iter().filter(|info| is_called(info, &entry)).collect(),
        };
        if matches.is_empty() {
            break;
        }
        for info in matches {
            if !chosen.iter().any(|known| known.id == info.id) {
                chosen.push(info.clone());
            }
        }
    }
    if chosen.is_empty() && !filter.trim().is_empty() {
        let known: Vec<String> =
            all.iter().zip(0..).map(|(info, index)| format!("{index}: {} ({})", info.name, info.platform)).collect();
        return Err(Error::NoDevice(format!(
            "TORCH_OPENCL_DEVICES={filter} names no device of this machine. Known: {}.",
            known.join("; ")
        )));
    }
    Ok(chosen)
}

fn is_called(info: &DeviceInfo, entry: &str) -> bool {
    match entry {
        "gpu" => info.device_type == DeviceType::Gpu,
        "cpu" => info.device_type == DeviceType::Cpu,
        "accelerator" => info.device_type == DeviceType::Accelerator,
        name => info.name.to_lowercase().contains(name) || info.platform.to_lowercase().contains(name),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn chosen(filter: Option<&str>) -> Result<Vec<String>> {
        let all = vec![
            DeviceInfo::imagined(1, "Host CPU", "PoCL", DeviceType::Cpu),
            DeviceInfo::imagined(2, "Radeon", "Mesa", DeviceType::Gpu),
            DeviceInfo::imagined(3, "Arc", "Intel OpenCL", DeviceType::Gpu),
            DeviceInfo::imagined(4, "FPGA", "Intel OpenCL", DeviceType::Accelerator),
        ];
        Ok(select(all, filter)?.into_iter().map(|info| info.name).collect())
    }

    #[test]
    fn without_a_filter_gpus_come_first_and_cpus_last() {
        assert_eq!(chosen(None).unwrap(), ["Radeon", "Arc", "FPGA", "Host CPU"]);
    }

    #[test]
    fn a_filter_takes_indices_types_and_names_in_its_order() {
        assert_eq!(chosen(Some("3,0")).unwrap(), ["Host CPU", "Radeon"]);
        assert_eq!(chosen(Some(" cpu , gpu")).unwrap(), ["Host CPU", "Radeon", "Arc"]);
        assert_eq!(chosen(Some("intel,RADEON")).unwrap(), ["Arc", "FPGA", "Radeon"]);
    }

    #[test]
    fn a_device_is_taken_once() {
        assert_eq!(chosen(Some("0,radeon,gpu")).unwrap(), ["Radeon", "Arc"]);
    }

    #[test]
    fn an_unknown_entry_ends_the_list() {
        assert_eq!(chosen(Some("1,-1,0")).unwrap(), ["Arc"]);
        assert_eq!(chosen(Some("2,17,0")).unwrap(), ["FPGA"]);
    }

    #[test]
    fn an_empty_filter_hides_all_devices_and_one_without_a_match_is_an_error() {
        assert_eq!(chosen(Some("")).unwrap(), Vec::<String>::new());
        let Err(Error::NoDevice(text)) = chosen(Some("nvidia")) else { unreachable!("nothing matches") };
        assert!(text.contains("TORCH_OPENCL_DEVICES=nvidia"));
        assert!(text.contains("3: Host CPU (PoCL)"));
    }
}
