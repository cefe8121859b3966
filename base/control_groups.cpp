#include "base/control_groups.hpp"

#include "base/kernel_text.hpp"

#include <algorithm>
#include <limits>

namespace troupe {

namespace {

namespace fs = std::filesystem;

/// In version 1 a group without a limit has the largest number of whole pages; no host has as much memory.
constexpr auto no_limit = std::numeric_limits<std::uint64_t>::max() / 4;

/// The mount point of a hierarchy, and the group that is mounted there.
struct mounted_hierarchy {
  fs::path at;
  fs::path group;
};

/// The group of this process, with all visible groups above it.
struct own_group {
  bool unified = false;
  fs::path mount;
  fs::path directory;
};

std::string_view next_word(std::string_view& line) {
  const auto word = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(word.size() + 1, line.size()));
  return word;
}

bool lists(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const auto one = words.substr(0, words.find(','));
    if (one == word)
      return true;
    words.remove_prefix(std::min(one.size() + 1, words.size()));
  }
  return false;
}

/// The group of this process that a line of /proc/self/cgroup names, "4:memory:/kv" or "0::/kv".
std::optional<std::string_view> group_in(std::string_view line, std::string_view controller) {
  const auto second = line.find(':');
  const auto third = second == std::string_view::npos ? second : line.find(':', second + 1);
  if (third == std::string_view::npos)
    return std::nullopt;
  const auto controllers = line.substr(second + 1, third - second - 1);
  const bool is_it = controller.empty() ? line.starts_with("0::") : lists(controllers, controller);
  return is_it ? std::optional(line.substr(third + 1)) : std::nullopt;
}

std::optional<std::string_view> group_of(std::string_view text, std::string_view controller) {
  while (!text.empty())
    if (const auto found = group_in(next_line(text), controller))
      return found;
  return std::nullopt;
}

/// Parses lines such as "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory". Without a controller it
/// finds the unified hierarchy.
std::optional<mounted_hierarchy> mount_of(std::string_view text, std::string_view controller) {
  while (!text.empty()) {
    auto line = next_line(text);
    for (int i = 0; i < 3; ++i)
      next_word(line);
    const auto group = next_word(line);
    const auto at = next_word(line);
    const auto tail = line.find(" - ");
    if (tail == std::string_view::npos)
      continue;
    line.remove_prefix(tail + 3);
    const auto type = next_word(line);
    next_word(line);
    if (controller.empty() ? type == "cgroup2" : type == "cgroup" && lists(line, controller))
      return mounted_hierarchy{fs::path(at), fs::path(group)};
  }
  return std::nullopt;
}

/// The path below the mount point; the mount point itself where the group is outside what is mounted, as in some
/// containers.
fs::path below(const fs::path& group, const fs::path& mounted) {
  const auto out = group.lexically_normal().lexically_relative(mounted.lexically_normal());
  return out.empty() || *out.begin() == ".." || out == "." ? fs::path() : out;
}

std::optional<own_group> find_group(const fs::path& root, std::string_view controller) {
  const auto groups = text_of_file(root / "proc/self/cgroup");
  auto group = group_of(groups, controller);
  const bool unified = !group;
  if (unified)
    group = group_of(groups, {});
  if (!group)
    return std::nullopt;
  const auto mounts = text_of_file(root / "proc/self/mountinfo");
  auto mounted = mount_of(mounts, unified ? std::string_view{} : controller);
  if (!mounted)
    mounted = mounted_hierarchy{unified ? fs::path("/sys/fs/cgroup") : fs::path("/sys/fs/cgroup") / controller, "/"};
  const auto mount = root / mounted->at.relative_path();
  return own_group{unified, mount, mount / below(fs::path(*group), mounted->group)};
}

/// The value of a line of memory.stat.
std::uint64_t stat_of(const std::string& text, std::string_view name) {
  return leading_number(line_of(text, name).value_or(std::string_view{})).value_or(0);
}

struct limit_files {
  const char* limit;
  const char* used;
};

/// Adds the limit of a group from this file, if it has one. `idle`: the part of its use that the kernel can reclaim at
/// once.
void add_limit(std::vector<group_limit>& to, const fs::path& group, const limit_files& names, std::uint64_t idle) {
  const auto bytes = limit_of_group(text_of_file(group / names.limit));
  if (!bytes)
    return;
  const auto used = leading_number(text_of_file(group / names.used)).value_or(0);
  to.push_back({*bytes, used - std::min(used, idle), (group / names.limit).string()});
}

/// Calls `look` with the group of this process and with each above it, up to the mount point.
template <class Look>
void look_upwards(const own_group& own, Look look) {
  auto at = own.directory.lexically_normal();
  const auto top = own.mount.lexically_normal();
  for (;;) {
    look(at);
    if (at == top || at.string().size() <= top.string().size())
      return;
    at = at.parent_path();
  }
}

} // namespace

std::optional<std::uint64_t> limit_of_group(std::string_view text) {
  const auto number = leading_number(text); // "max" is none
  return number && *number < no_limit ? number : std::nullopt;
}

std::vector<group_limit> memory_limits_of_groups(const fs::path& root) {
  std::vector<group_limit> out;
  const auto own = find_group(root, "memory");
  if (!own)
    return out;
  look_upwards(*own, [&](const fs::path& group) {
    const auto stat = text_of_file(group / "memory.stat");
    // Inactive page cache: the kernel reclaims it before it refuses an allocation.
    const auto idle = stat_of(stat, own->unified ? "inactive_file " : "total_inactive_file ");
    if (own->unified) {
      add_limit(out, group, {"memory.max", "memory.current"}, idle);
      add_limit(out, group, {"memory.high", "memory.current"}, idle);
      return;
    }
    // Groups above count only if they include the groups below them, which very old ones do not.
    if (group == own->directory.lexically_normal() || !text_of_file(group / "memory.use_hierarchy").starts_with('0'))
      add_limit(out, group, {"memory.limit_in_bytes", "memory.usage_in_bytes"}, idle);
  });
  if (own->unified)
    return out;
  // Version 1 also reports limits of groups that are not visible within a container.
  const auto stat = text_of_file(own->directory / "memory.stat");
  const auto least = limit_of_group(line_of(stat, "hierarchical_memory_limit ").value_or(std::string_view{}));
  if (least && std::ranges::none_of(out, [&](const group_limit& x) { return x.bytes <= *least; })) {
    const auto used = leading_number(text_of_file(own->directory / "memory.usage_in_bytes")).value_or(0);
    const auto idle = stat_of(stat, "total_inactive_file ");
    out.push_back({*least, used - std::min(used, idle),
                   (own->directory / "memory.stat").string() + ", hierarchical_memory_limit"});
  }
  return out;
}

std::vector<group_limit> huge_page_limits_of_groups(std::string_view size, const fs::path& root) {
  std::vector<group_limit> out;
  const auto own = find_group(root, "hugetlb");
  if (!own)
    return out;
  const auto name = "hugetlb." + std::string(size);
  look_upwards(*own, [&](const fs::path& group) {
    // "rsvd" limits reservations, the other one limits use.
    for (const auto* kind : {".", ".rsvd."}) {
      const auto limit = name + kind + (own->unified ? "max" : "limit_in_bytes");
      const auto used = name + kind + (own->unified ? "current" : "usage_in_bytes");
      add_limit(out, group, {limit.c_str(), used.c_str()}, 0);
    }
  });
  return out;
}

std::optional<double> processor_quota_of_groups(const fs::path& root) {
  const auto own = find_group(root, "cpu");
  if (!own)
    return std::nullopt;
  std::optional<double> least;
  look_upwards(*own, [&](const fs::path& group) {
    // "max 100000" or "150000 100000"; version 1 has a file for each, and -1 for no quota.
    const auto both = text_of_file(group / "cpu.max");
    const auto quota = leading_number(own->unified ? both : text_of_file(group / "cpu.cfs_quota_us"));
    const auto period = leading_number(own->unified ? both.substr(std::min(both.find(' '), both.size()))
                                                    : text_of_file(group / "cpu.cfs_period_us"));
    if (quota && period && *period > 0) {
      const auto here = static_cast<double>(*quota) / static_cast<double>(*period);
      least = std::min(least.value_or(here), here);
    }
  });
  return least;
}

const group_limit* tightest(const std::vector<group_limit>& limits) {
  const auto least = std::ranges::min_element(limits, {}, &group_limit::left);
  return least == limits.end() ? nullptr : &*least;
}

} // namespace troupe
