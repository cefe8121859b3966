#include "tests/simulation/namespace_folder.hpp"

#include "io/page.hpp"
#include "io/slab/disk_budget.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace troupe::simulation {

/// One slab, opened. Bytes move when a transfer begins and when it ends, half and half.
class namespace_folder::store final : public io::page_store {
public:
  store(namespace_folder& of, std::shared_ptr<slab> file, std::shared_ptr<namespace_memory> memory,
        const std::string& name, std::shared_ptr<completion_target> target)
      : of_(of), file_(std::move(file)), memory_(std::move(memory)), target_(std::move(target)), life_(of.life_) {
    traits_ = {file_->slots_max, file_->slot_bytes, 4096, true, file_->incarnation, name};
    growth_ = make_growth(of_, file_);
    file_->open = true;
  }
  ~store() override { stop(); }

  const io::page_store_traits& traits() const noexcept override { return traits_; }
  result<std::uint32_t> add_buffer(std::span<std::byte>) override { return ++last_buffer_; }
  void remove_buffer(std::uint32_t) override {}

  void submit(std::span<const io::page_request> requests) override {
    for (const auto& x : requests) {
      if (x.where.slot >= file_->slots)
        of_.world_.fail("files", "slot " + std::to_string(x.where.slot) + " is used of a slab that has " +
                                     std::to_string(file_->slots));
      const auto number = ++last_;
      const bool trims = x.op == io::operation::trim;
      if (x.op != io::operation::read)
        check_alone(x);
      under_way_.emplace(number,
                         transfer{x, trims ? 0 : memory_->begin_copy(memory_->offset_of(x.data), "a disk touches it")});
      if (x.op == io::operation::write)
        occupy(x);
      // A process that is killed leaves a trim that was made, or was not.
      if (!trims || of_.random_.one_in(2))
        half(x, false);
      of_.world_.schedule.after(of_.random_.skewed_time(std::chrono::microseconds(20), of_.p_.io_time),
                                [this, &world = of_.world_, alive = std::weak_ptr<int>(alive_), number] {
                                  if (!alive.expired() && under_way_.contains(number))
                                    end(number);
                                  else
                                    world.schedule.idle();
                                });
    }
  }

  void stop() override {
    if (!alive_)
      return;
    alive_.reset();
    // A write in progress of a killed process ends at a page's beginning, its end or in between.
    for (auto& [number, x] : std::exchange(under_way_, {})) {
      if (life_ == of_.life_)
        half(x.what, true);
      if (x.copy != 0)
        memory_->end_copy(x.copy);
    }
    file_->open = false;
  }

  result<void> health() const override { return {}; }
  std::shared_ptr<io::store_growth> growth() const override;
  std::vector<std::uint64_t> occupied() const override {
    if (!file_->sparse)
      return {};
    return {file_->occupied.begin(), file_->occupied.begin() + static_cast<std::ptrdiff_t>(file_->slots)};
  }
  std::string describe() const override { return "a simulated disk"; }

private:
  struct transfer {
    io::page_request what;
    /// 0: a trim, which touches no memory.
    std::uint64_t copy = 0;
  };

  static std::shared_ptr<io::store_growth> make_growth(namespace_folder& of, const std::shared_ptr<slab>& file);

  /// A slot is trimmed while nothing is written to it, and written to while it is not trimmed.
  void check_alone(const io::page_request& x) const {
    for (const auto& [number, other] : under_way_)
      if (other.what.where.slot == x.where.slot && other.what.op != io::operation::read &&
          (x.op == io::operation::trim || other.what.op == io::operation::trim))
        of_.world_.fail("files", "slot " + std::to_string(x.where.slot) + " is trimmed while it is written to");
  }

  void occupy(const io::page_request& x) {
    if (!file_->sparse)
      return;
    namespace_folder::occupy(*file_, x.where.slot, std::max(file_->occupied[x.where.slot], x.length));
    if (file_->occupied_bytes > file_->granted * file_->slot_bytes)
      of_.world_.fail("disk", "a slab file occupies " + std::to_string(file_->occupied_bytes) + " bytes of " +
                                  std::to_string(file_->granted * file_->slot_bytes));
  }

  void trim(const io::page_request& x) {
    if (of_.world_.has(defect::lose_trim))
      return;
    auto& page = file_->pages[x.where.slot];
    page.resize(file_->slot_bytes);
    std::memset(page.data() + x.from, 0, x.length);
    namespace_folder::occupy(*file_, x.where.slot, std::min(file_->occupied[x.where.slot], x.from));
  }

  void half(const io::page_request& x, bool second) {
    if (x.op == io::operation::trim)
      return trim(x);
    auto& page = file_->pages[x.where.slot];
    page.resize(file_->slot_bytes);
    const auto middle = x.length / 2;
    const auto from = second ? middle : 0;
    const auto length = second ? x.length - middle : middle;
    if (x.op == io::operation::write)
      std::memcpy(page.data() + from, x.data + from, length);
    else
      std::memcpy(x.data + from, page.data() + from, length);
  }

  void end(std::uint64_t number) {
    const auto x = std::move(under_way_.extract(number).mapped());
    if (x.copy != 0)
      memory_->end_copy(x.copy);
    const bool read = x.what.op == io::operation::read;
    auto status = errc::ok;
    if (!of_.world_.winding_down && of_.random_.chance(read ? of_.p_.read_error : of_.p_.write_error)) {
      of_.world_.count(read ? "fault: read error" : "fault: write error");
      status = errc::io_error;
    } else {
      half(x.what, true);
    }
    of_.world_.count(read ? "disk: read" : x.what.op == io::operation::trim ? "disk: trim" : "disk: write");
    const io::completion done{x.what.tag, status, 0};
    target_->deliver({&done, 1});
  }

  namespace_folder& of_;
  std::shared_ptr<slab> file_;
  std::shared_ptr<namespace_memory> memory_;
  std::shared_ptr<completion_target> target_;
  std::shared_ptr<io::store_growth> growth_;
  std::uint64_t life_;
  io::page_store_traits traits_;
  std::shared_ptr<int> alive_ = std::make_shared<int>();
  std::map<std::uint64_t, transfer> under_way_;
  std::uint64_t last_ = 0;
  std::uint32_t last_buffer_ = 0;
};

class namespace_folder::growth final : public io::store_growth {
public:
  growth(namespace_folder& of, std::shared_ptr<slab> file) : of_(of), file_(std::move(file)) {}

  std::uint64_t slots() const noexcept override { return file_->slots; }
  std::uint64_t slot_bytes() const noexcept override { return file_->slot_bytes; }
  result<void> grow(std::uint64_t slots) override {
    if (!of_.world_.winding_down && of_.random_.chance(of_.p_.disk_full)) {
      of_.world_.count("fault: no room to grow");
      return fail(errc::no_space, "the simulated disk is full");
    }
    of_.world_.count("slab has grown");
    if (file_->sparse && !of_.world_.has(defect::forget_granted))
      given_.push_back({file_->slots, slots});
    namespace_folder::grow(*file_, slots);
    return {};
  }
  std::uint64_t granted() const noexcept override { return file_->sparse ? file_->granted : file_->slots; }
  bool is_sparse() const noexcept override { return file_->sparse; }
  io::slab_grant take_granted() override { return {granted(), std::exchange(given_, {})}; }
  result<void> extend(std::uint64_t slots) override {
    if (!of_.world_.winding_down && of_.random_.chance(of_.p_.disk_full)) {
      of_.world_.count("fault: slots within the space are not recorded");
      return fail(errc::io_error, "the simulated disk records nothing");
    }
    of_.world_.count("slab has slots within its space");
    file_->slots = slots;
    file_->occupied.resize(slots);
    return {};
  }

private:
  namespace_folder& of_;
  std::shared_ptr<slab> file_;
  std::vector<io::slot_range> given_;
};

std::shared_ptr<io::store_growth> namespace_folder::store::growth() const {
  return growth_;
}

std::shared_ptr<io::store_growth> namespace_folder::store::make_growth(namespace_folder& of,
                                                                       const std::shared_ptr<slab>& file) {
  return std::make_shared<namespace_folder::growth>(of, file);
}

/// The view of one run of the node on the folder.
class namespace_folder::run final : public namespace_files {
public:
  run(namespace_folder& of, std::shared_ptr<namespace_memory> memory) : of_(of), memory_(std::move(memory)) {}

  std::vector<std::string> list() const override {
    std::vector<std::string> out;
    for (const auto& [name, x] : of_.slabs_)
      out.push_back(name);
    return out;
  }

  std::uint64_t bytes_of(const std::string& name) const override {
    const auto& x = *of_.slabs_.at(name);
    return (x.sparse ? x.granted : x.slots) * x.slot_bytes + io::slab_tail_bytes;
  }

  bool has(const std::string& name) const override { return of_.slabs_.contains(name); }

  result<rank_parts> open(const namespace_spec& ns, rank_number rank, std::uint64_t first_slots) override {
    const auto name = made_slab_name(ns.id(), rank);
    const auto page = ns.geometry.page_bytes();
    rank_parts out{0, rank, 0, 0, std::make_shared<io_worker_parts>()};
    auto& parts = *out.worker;
    parts.name = {ns.id(), ns.name, rank};
    parts.page_bytes = page;
    parts.extents = memory_;
    auto& rules = parts.options;
    rules.slot_bytes = io::slot_bytes(page);
    rules.encoded_bytes = of_.p_.encodings ? io::encoded_slot_bytes(page) : 0;
    const auto least = rules.encoded_bytes > 0 ? rules.encoded_bytes : rules.slot_bytes;
    const auto frames_max = of_.p_.extents * (of_.p_.extent_bytes / least);
    rules.deadline_max = std::chrono::seconds(10);
    rules.pinned_bytes_max = 8 * rules.slot_bytes;
    rules.first_pin = of_.random_.next() >> 32U;
    if (first_slots == 0) {
      rules.memory_only = true;
      rules.slots = frames_max;
      out.slots = rules.slots;
      out.incarnation = of_.opened_[name] = of_.random_.next() | 1U;
      of_.world_.count("rank is in memory only");
      return out;
    }
    auto& found = of_.slabs_[name];
    if (!found) {
      if (!of_.world_.winding_down && of_.random_.chance(of_.p_.disk_full)) {
        of_.world_.count("fault: no room for a slab");
        of_.slabs_.erase(name);
        return fail(errc::no_space, "the simulated disk is full");
      }
      found = std::make_shared<slab>();
      found->incarnation = of_.random_.next() | 1U;
      found->slot_bytes = rules.slot_bytes;
      found->sparse = of_.p_.sparse;
      found->slots_max =
          (of_.p_.disk_bytes - io::slab_tail_bytes) / (found->sparse ? rules.encoded_bytes : rules.slot_bytes);
      namespace_folder::grow(*found, first_slots);
    } else if (found->open) {
      of_.world_.fail("files", name + " is opened again while it is open");
    }
    out.slots = found->slots_max;
    if (!of_.p_.strict())
      out.memory_slots = frames_max;
    rules.sparse = found->sparse;
    rules.expected_slab_slots =
        std::max<std::uint64_t>((of_.p_.disk_bytes - io::slab_tail_bytes) / rules.slot_bytes / ns.world_size, 1);
    rules.slots = out.slots + out.memory_slots;
    rules.memory_slots = out.memory_slots;
    out.incarnation = of_.opened_[name] = found->incarnation;
    rules.write_through = of_.p_.strict();
    rules.write_eagerly = of_.p_.write_eagerly;
    rules.second_hit = of_.p_.second_hit;
    rules.prefetch_pages_max = of_.p_.prefetch_pages;
    parts.target = std::make_shared<completion_target>();
    auto opened = std::make_unique<store>(of_, found, memory_, name, parts.target);
    out.growth = opened->growth();
    parts.store = std::move(opened);
    return out;
  }

  void remove(const std::string& name) override {
    of_.world_.count("slab is removed");
    if (!of_.world_.has(defect::keep_files))
      of_.slabs_.erase(name);
  }

private:
  namespace_folder& of_;
  std::shared_ptr<namespace_memory> memory_;
};

namespace_folder::namespace_folder(environment& world, const namespace_parameters& p)
    : world_(world), p_(p), random_(world.random.fork()) {}

std::shared_ptr<namespace_files> namespace_folder::open(std::shared_ptr<namespace_memory> memory) {
  return std::make_shared<run>(*this, std::move(memory));
}

void namespace_folder::occupy(slab& file, std::uint64_t slot, std::uint64_t bytes) {
  file.occupied_bytes += bytes - file.occupied[slot];
  file.occupied[slot] = bytes;
}

void namespace_folder::grow(slab& file, std::uint64_t slots) {
  file.granted += slots - file.slots;
  file.occupied.resize(slots);
  for (auto slot = file.slots; slot < slots; ++slot)
    occupy(file, slot, file.slot_bytes);
  file.slots = slots;
}

void namespace_folder::crash() {
  ++life_;
  for (const auto& [name, x] : slabs_)
    x->open = false;
}

incarnation_number namespace_folder::incarnation(const namespace_id& ns, rank_number rank) const {
  const auto found = opened_.find(made_slab_name(ns, rank));
  return found == opened_.end() ? 0 : found->second;
}

std::size_t namespace_folder::files_of(const namespace_id& ns) const {
  return static_cast<std::size_t>(std::count_if(
      slabs_.begin(), slabs_.end(), [&](const auto& x) { return x.first.starts_with(to_string(ns) + ".rank-"); }));
}

} // namespace troupe::simulation
