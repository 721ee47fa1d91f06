// A plugin of Oclgrind that counts how work-items that run together touch global memory.
//
// A GPU runs 32 work-items, a warp, in step, and fetches memory in sectors of 32 bytes. Loads or stores of a warp by
// one instruction are one request. It is coalesced if it touches no more sectors than its bytes need. Each kernel that
// ends is one line of JSON in the file that COALESCING_LOG names. Atomics are not counted.

#include <oclgrind/Context.h>
#include <oclgrind/KernelInvocation.h>
#include <oclgrind/Memory.h>
#include <oclgrind/Plugin.h>
#include <oclgrind/Program.h>
#include <oclgrind/WorkGroup.h>
#include <oclgrind/WorkItem.h>
#include <algorithm>
#include <fstream>
#include <functional>

// The two methods of Kernel.h that are used. The header itself includes LLVM's headers, which few machines have.
namespace oclgrind {
class Kernel {
 public:
  const std::string& getName() const;
  const Program* getProgram() const;
};
} // namespace oclgrind

// LLVM's stable C interface for the source location of an instruction.
extern "C" {
const void* LLVMInstructionGetDebugLoc(const void* instruction);
const void* LLVMDILocationGetInlinedAt(const void* location);
unsigned LLVMDILocationGetLine(const void* location);
}

namespace {

using Instruction = const llvm::Instruction*;
constexpr size_t WARP = 32;
constexpr uint64_t SECTOR = 32;

struct Range {
  uint64_t first, end;
  bool operator<(const Range& other) const {
    return first < other.first;
  }
};
using Ranges = std::vector<Range>;

struct Cost {
  uint64_t bytes = 0, sectors = 0;
  uint64_t least() const {
    return (bytes + SECTOR - 1) / SECTOR;
  }
};

// Counts the bytes that the ranges cover, each once, and the sectors that they touch.
Cost cost_of(Ranges& ranges) {
  std::sort(ranges.begin(), ranges.end());
  Cost cost;
  uint64_t covered = 0, next_sector = 0;
  for (const Range& range : ranges) {
    const uint64_t first = std::max(range.first, covered);
    cost.bytes += range.end > first ? range.end - first : 0;
    covered = std::max(covered, range.end);
    const uint64_t sector = std::max(range.first / SECTOR, next_sector), sectors_end = (range.end - 1) / SECTOR + 1;
    cost.sectors += sectors_end > sector ? sectors_end - sector : 0;
    next_sector = std::max(next_sector, sectors_end);
  }
  return cost;
}

// An instruction, and the calls that led to it.
struct Site {
  std::vector<Instruction> calls;
  bool stores;
  // Since the group's last barrier: how often each item executed the instruction, and for each warp the ranges that its
  // items touched each time.
  std::vector<uint32_t> times;
  std::vector<std::vector<Ranges>> warps;
  uint64_t requests = 0, accesses = 0, sectors = 0, least = 0;
};

struct Launch {
  std::unordered_map<size_t, Site> sites;
  std::vector<uint64_t> items; // accesses of each item of the group
  Ranges touched;              // by the group
  uint64_t accesses = 0, longest = 0, fetched = 0, used = 0;
};

void quote(std::ostream& out, const char* text, size_t length) {
  out << '"';
  for (size_t i = 0; i < length; ++i) {
    if (text[i] == '"' || text[i] == '\\') {
      out << '\\';
    }
    out << (static_cast<unsigned char>(text[i]) < ' ' ? ' ' : text[i]);
  }
  out << '"';
}

class Coalescing : public oclgrind::Plugin {
 public:
  using Plugin::Plugin;

  bool isThreadSafe() const override {
    return false;
  }

  void kernelBegin(const oclgrind::KernelInvocation*) override {
    launch = Launch();
  }

  void memoryLoad(
      const oclgrind::Memory* memory, const oclgrind::WorkItem* item, size_t address, size_t size) override {
    touch(memory, item, address, size, false);
  }

  void memoryStore(
      const oclgrind::Memory* memory,
      const oclgrind::WorkItem* item,
      size_t address,
      size_t size,
      const uint8_t*) override {
    touch(memory, item, address, size, true);
  }

  void workGroupBarrier(const oclgrind::WorkGroup*, uint32_t) override {
    end_of_phase();
  }

  void workGroupComplete(const oclgrind::WorkGroup*) override {
    end_of_phase();
    for (uint64_t& accesses : launch.items) {
      launch.accesses += accesses;
      launch.longest = std::max(launch.longest, accesses);
      accesses = 0;
    }
    const Cost cost = cost_of(launch.touched);
    launch.fetched += cost.sectors;
    launch.used += cost.least();
    launch.touched.clear();
  }

  void kernelEnd(const oclgrind::KernelInvocation* invocation) override {
    const char* path = std::getenv("COALESCING_LOG");
    if (!path) {
      return;
    }
    const oclgrind::Kernel* kernel = invocation->getKernel();
    std::ofstream out(path, std::ios::app);
    const auto global = invocation->getGlobalSize(), local = invocation->getLocalSize();
    out << "{\"kernel\": \"" << kernel->getName() << "\", \"global\": [" << global.x << ", " << global.y << ", "
        << global.z << "], \"local\": [" << local.x << ", " << local.y << ", " << local.z
        << "], \"accesses\": " << launch.accesses << ", \"longest\": " << launch.longest
        << ", \"used\": " << launch.used << ", \"fetched\": " << launch.fetched << ", \"sites\": [";
    const char* separator = "";
    for (const auto& [key, site] : launch.sites) {
      out << separator << "{\"stores\": " << (site.stores ? "true" : "false") << ", \"requests\": " << site.requests
          << ", \"accesses\": " << site.accesses << ", \"sectors\": " << site.sectors << ", \"least\": " << site.least
          << ", \"frames\": [";
      separator = "";
      for (Instruction call : site.calls) {
        place(out, separator, kernel->getProgram(), LLVMInstructionGetDebugLoc(call));
      }
      out << "]}";
      separator = ", ";
    }
    out << "]}\n";
  }

 private:
  Launch launch;

  void touch(const oclgrind::Memory* memory, const oclgrind::WorkItem* item, size_t address, size_t size, bool stores) {
    if (memory->getAddressSpace() != oclgrind::AddrSpaceGlobal || size == 0) {
      return;
    }
    using Stack = std::stack<Instruction>;
    struct Open : Stack {
      static const Stack::container_type& of(const Stack& stack) {
        return stack.*&Open::c;
      }
    };
    const auto& calls = Open::of(item->getCallStack());
    const Instruction now = item->getCurrentInstruction();
    size_t key = std::hash<const void*>()(now) * 2 + stores;
    for (Instruction call : calls) {
      key = key * 1000003 ^ std::hash<const void*>()(call);
    }
    const auto [entry, is_new] = launch.sites.try_emplace(key);
    Site& site = entry->second;
    if (is_new) {
      site.calls.assign(calls.begin(), calls.end());
      site.calls.push_back(now);
      site.stores = stores;
    }
    const oclgrind::Size3 id = item->getLocalID(), group = item->getWorkGroup()->getGroupSize();
    const size_t index = id.x + group.x * (id.y + group.y * id.z), items = group.x * group.y * group.z;
    if (launch.items.size() < items) {
      launch.items.resize(items);
    }
    if (site.times.size() < items) {
      site.times.resize(items);
      site.warps.resize((items + WARP - 1) / WARP);
    }
    launch.items[index] += 1;
    const Range range = {address, address + size};
    std::vector<Ranges>& requests = site.warps[index / WARP];
    const size_t time = site.times[index]++;
    if (requests.size() <= time) {
      requests.resize(time + 1);
    }
    requests[time].push_back(range);
    launch.touched.push_back(range);
  }

  void end_of_phase() {
    for (auto& [key, site] : launch.sites) {
      std::fill(site.times.begin(), site.times.end(), 0);
      for (auto& requests : site.warps) {
        for (Ranges& ranges : requests) {
          if (ranges.empty()) {
            continue;
          }
          const Cost cost = cost_of(ranges);
          site.requests += 1;
          site.accesses += ranges.size();
          site.sectors += cost.sectors;
          site.least += cost.least();
        }
        requests.clear();
      }
    }
  }

  // Writes the line and its neighbours, because a program is made of several files; before it, the lines that it was
  // inlined into.
  static void place(std::ostream& out, const char*& separator, const oclgrind::Program* program, const void* location) {
    if (!location) {
      return;
    }
    place(out, separator, program, LLVMDILocationGetInlinedAt(location));
    const size_t line = LLVMDILocationGetLine(location);
    out << separator << '[';
    for (size_t near = line - 1; line && near <= line + 1; ++near) {
      const char* text = near && near <= program->getNumSourceLines() ? program->getSourceLine(near) : "";
      out << (near == line - 1 ? "" : ", ");
      quote(out, text, std::strlen(text));
    }
    out << ']';
    separator = ", ";
  }
};

std::unique_ptr<Coalescing> plugin;

} // namespace

extern "C" void initializePlugins(oclgrind::Context* context) {
  plugin = std::make_unique<Coalescing>(context);
  context->registerPlugin(plugin.get());
}

extern "C" void releasePlugins(oclgrind::Context* context) {
  context->unregisterPlugin(plugin.get());
  plugin.reset();
}
