//! The devices that the user sees, and their order: `TORCH_OPENCL_DEVICES`.

use std::cmp::Reverse;
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

/// The devices that the user sees, and those that only a filter can select.
#[derive(Debug)]
pub struct Selection {
    pub chosen: Vec<DeviceInfo>,
    /// Devices that another driver presents too, each with the index of that one in `chosen`.
    pub left_out: Vec<(DeviceInfo, usize)>,
}

/// The devices in the order of their indices: GPUs first and CPUs last, of GPUs those with separate memory first, then
/// those with more memory, else in the order of the drivers. A device that several drivers present is taken once, with
/// the driver of its vendor.
fn ordered(all: &[DeviceInfo]) -> Selection {
    let memory = |info: &DeviceInfo| match info.device_type {
        DeviceType::Gpu => (info.host_unified, Reverse(info.global_mem)),
        DeviceType::Accelerator | DeviceType::Cpu => (false, Reverse(0)),
    };
    let is_duplicate = |at: usize, info: &DeviceInfo| {
        let is_better = |(other_at, other): (usize, &DeviceInfo)| {
            other.is_same_device(info) && (other.is_by_other_vendor(), other_at) < (info.is_by_other_vendor(), at)
        };
        all.iter().enumerate().any(is_better)
    };
    let (mut chosen, mut duplicates) = (Vec::new(), Vec::new());
    for (at, info) in all.iter().enumerate() {
        if is_duplicate(at, info) { &mut duplicates } else { &mut chosen }.push(info.clone());
    }
    chosen.sort_by_key(|info| (info.device_type, memory(info)));
    let index_of = |info: &DeviceInfo| chosen.iter().position(|known| known.is_same_device(info));
    let left_out = duplicates.into_iter().filter_map(|info| index_of(&info).map(|index| (info, index))).collect();
    Selection { chosen, left_out }
}

/// The devices in their order or, with a filter, the entries of the filter in its order.
///
/// The filter is a comma-separated list of indices into that order, of types (`gpu`, `cpu`, `accelerator`), or of
/// parts of a device's or platform's name, which may be that of a device left out. As with `CUDA_VISIBLE_DEVICES`, an
/// unknown entry ends the list.
pub(super) fn select(all: Vec<DeviceInfo>, filter: Option<&str>) -> Result<Selection> {
    let found = ordered(&all);
    let Some(filter) = filter else { return Ok(found) };
    let Selection { chosen: all, left_out } = found;
    let mut chosen: Vec<DeviceInfo> = Vec::new();
    for entry in filter.split(',').map(|entry| entry.trim().to_lowercase()).filter(|entry| !entry.is_empty()) {
        let matches: Vec<&DeviceInfo> = match entry.parse::<usize>() {
            Ok(index) => all.get(index).into_iter().collect(),
            Err(_) => {
                let named = all.iter().filter(|info| is_called(info, &entry));
                // Not if the name is also that of the device's other driver.
                let others = left_out.iter().filter(|(info, twin)| {
                    is_called(info, &entry) && !all.get(*twin).is_some_and(|info| is_called(info, &entry))
                });
                named.chain(others.map(|(info, _)| info)).collect()
            }
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
    Ok(Selection { chosen, left_out: Vec::new() })
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
        Ok(select(all, filter)?.chosen.into_iter().map(|info| info.name).collect())
    }

    #[test]
    fn without_a_filter_gpus_come_first_and_cpus_last() {
        assert_eq!(chosen(None).unwrap(), ["Radeon", "Arc", "FPGA", "Host CPU"]);
    }

    fn gpu(id: usize, name: &str, platform: &str, bus: u32) -> DeviceInfo {
        DeviceInfo { pci: Some([bus, 0, 0]), ..DeviceInfo::imagined(id, name, platform, DeviceType::Gpu) }
    }

    #[test]
    fn gpus_with_separate_and_with_more_memory_come_first() {
        let all = vec![
            gpu(1, "integrated", "Intel OpenCL", 1),
            DeviceInfo { host_unified: false, global_mem: 1 << 31, ..gpu(2, "small", "Intel OpenCL", 2) },
            DeviceInfo { host_unified: false, global_mem: 1 << 33, ..gpu(3, "large", "Intel OpenCL", 3) },
        ];
        let names: Vec<_> = select(all, None).unwrap().chosen.into_iter().map(|info| info.name).collect();
        assert_eq!(names, ["large", "small", "integrated"]);
    }

    #[test]
    fn a_device_of_two_drivers_is_taken_once_and_a_filter_selects_the_other() {
        let all =
            || vec![gpu(1, "Arc (mesa)", "rusticl", 3), gpu(2, "Arc", "Intel OpenCL", 3), gpu(3, "B", "rusticl", 4)];
        let found = select(all(), None).unwrap();
        assert_eq!(found.chosen.iter().map(|info| info.name.as_str()).collect::<Vec<_>>(), ["Arc", "B"]);
        let left_out: Vec<_> = found.left_out.iter().map(|(info, index)| (info.name.as_str(), *index)).collect();
        assert_eq!(left_out, [("Arc (mesa)", 0)]);
        let chosen =
            |filter| select(all(), Some(filter)).unwrap().chosen.iter().map(|info| info.id).collect::<Vec<_>>();
        assert_eq!(chosen("mesa"), [all()[0].id]);
        assert_eq!(chosen("rusticl"), [all()[2].id, all()[0].id]);
        assert_eq!(chosen("gpu"), [all()[1].id, all()[2].id]);
    }

    #[test]
    fn parts_of_a_device_and_devices_without_an_address_stay_separate() {
        let parts = vec![gpu(1, "tile 0", "Intel OpenCL", 3), gpu(2, "tile 1", "Intel OpenCL", 3)];
        assert_eq!(select(parts, None).unwrap().chosen.len(), 2);
        let unknown = |id, platform| DeviceInfo { pci: None, ..gpu(id, "GPU", platform, 0) };
        assert_eq!(select(vec![unknown(1, "A"), unknown(2, "B")], None).unwrap().chosen.len(), 2);
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
