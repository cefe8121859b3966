#include "actors/node/io_worker/io_worker.hpp"
#include "actors/node/io_worker/page_checker.hpp"
#include "actors/support/actor_support.hpp"
#include "base/log.hpp"
#include "io/page.hpp"
#include "messages/answer_codes.hpp"

#include <cstdlib>

/// The messages of an io worker for scrubbing.

namespace troupe {

void io_worker::begin_scrub() {
  if (!parts_->options.scrub.pace || !parts_->store || shards_.empty())
    return;
  const auto bytes = parts_->options.slot_bytes;
  const std::shared_ptr<std::byte> memory(static_cast<std::byte*>(std::aligned_alloc(io::page_alignment, bytes)),
                                          [](std::byte* p) { std::free(p); });
  const std::span<std::byte> span(memory.get(), memory ? bytes : 0);
  const auto buffer = memory ? parts_->store->add_buffer(span) : fail(errc::no_memory, "there is no memory");
  if (!buffer) {
    log::get("io")->warn("scrub disabled: {} ({})", parts_->name.namespace_name, buffer.error().text);
    return;
  }
  scrub_memory_ = memory;
  scrub_checker_ = spawn<page_checker, caf::linked>(
      page_checker_options{parts_->name.ns, parts_->name.rank, parts_->page_bytes, span, memory});
  state_.begin_scrub(span, *buffer, static_cast<std::uint32_t>(shards_.size()), now());
}

void io_worker::ask_what_to_scrub() {
  const auto wanted = state_.take_scrub_wish(now());
  if (!wanted)
    return;
  request(shards_[wanted->shard], caf::infinite,
          list_pages_request{parts_->name.ns, parts_->name.rank, wanted->from, wanted->most})
      .then(
          [this](list_pages_reply& x) {
            state_.scrub_listed(std::move(x.pages.items), x.next, x.more, now());
            flush();
          },
          [this](const caf::error&) {
            state_.scrub_not_listed(now());
            flush();
          });
}

void io_worker::check_scrubbed() {
  const auto page = state_.take_scrub_check();
  if (!page)
    return;
  check_order order;
  order.items.items.push_back({*page, 0, parts_->options.slot_bytes});
  const auto verdict = [this](errc code) {
    state_.scrub_verdict(code, now());
    flush();
  };
  request(scrub_checker_, caf::infinite, std::move(order))
      .then([verdict](const io_reply& reply) { verdict(code_at(reply.results, 0)); },
            [verdict](const caf::error& e) { verdict(from_caf(e).code); });
}

void io_worker::report_scrub() {
  if (!scrub_checker_)
    return;
  const auto stats = state_.stats();
  if (stats.scrub_passes == reported_passes_)
    return;
  reported_passes_ = stats.scrub_passes;
  log::get("io")->info("scrub complete: namespace '{}' rank {}, pass {}; since the start {} pages "
                       "read, {} corrupt",
                       parts_->name.namespace_name, parts_->name.rank, stats.scrub_passes, stats.scrubbed_pages,
                       stats.scrub_unsound_pages);
}

} // namespace troupe
