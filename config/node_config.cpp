#include "config/node_config.hpp"

#include "config/document.hpp"
#include "config/overrides.hpp"
#include "config/reader.hpp"
#include "config/rules.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>

namespace troupe::config {

namespace {

constexpr std::size_t max_file_bytes = 1 * mebibyte;

load_result refuse(std::string_view origin, std::string text) {
  return tl::unexpected(std::vector{problem{std::string{origin}, std::move(text), {}}});
}

struct file_closer {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

} // namespace

std::string to_string(const problem& p) {
  auto result = p.path + ": " + p.text;
  return p.where.empty() ? result : result + " (" + p.where + ")";
}

http_config server_of(const http_listener_config& own, const http_limits& limits) {
  return {own, "off", limits};
}

load_result parse(std::string_view text, std::string_view origin, std::span<const std::string> overrides,
                  purpose what_for) {
  if (origin.empty())
    origin = "config";
  if (text.size() > max_file_bytes)
    return refuse(origin, "a config can have at most 1 MiB");
  auto document = read_document(text, origin);
  if (!document)
    return tl::unexpected(std::move(document.error()));
  if (!document->is<json_object>())
    return refuse(origin, "expected an object, got " + show(*document));
  std::vector<problem> problems;
  apply_overrides(*document, overrides, problems);
  auto config = read_config(*document, problems);
  check_rules(config, what_for, problems);
  if (!problems.empty())
    return tl::unexpected(std::move(problems));
  return config;
}

load_result load(const std::filesystem::path& file, std::span<const std::string> overrides, purpose what_for) {
  const auto origin = file.empty() ? std::string{"config"} : file.string();
  const std::unique_ptr<std::FILE, file_closer> stream{std::fopen(file.c_str(), "rb")};
  if (!stream)
    return refuse(origin, std::string{"cannot be opened: "} + std::strerror(errno));
  std::string text(max_file_bytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), stream.get()));
  if (std::ferror(stream.get()) != 0)
    return refuse(origin, std::string{"cannot be read: "} + std::strerror(errno));
  return parse(text, origin, overrides, what_for);
}

std::vector<problem> validate(const node_config& config, purpose what_for) {
  const auto loaded = parse(to_json(config), "config", {}, what_for);
  if (!loaded)
    return loaded.error();
  if (*loaded != config)
    return {problem{"config", "holds text that is not valid UTF-8", {}}};
  return {};
}

} // namespace troupe::config
