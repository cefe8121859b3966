#include "workload/engine_model/request.hpp"

#include "base/digest.hpp"

namespace troupe::engine {
namespace {

content mix_in(content so_far, std::string_view text) {
  so_far = mix(so_far, text.size());
  for (const auto c : text)
    so_far = mix(so_far, static_cast<unsigned char>(c));
  return so_far;
}

} // namespace

course make_course(const request_spec& spec, std::uint32_t tokens, std::uint32_t vocabulary) {
  course out;
  out.tokens.reserve(tokens);
  out.contents.reserve(tokens);
  auto context = mix_in(mix_in(0, spec.lora), spec.cache_salt);
  auto image = spec.multimodal.begin();
  for (std::uint32_t i = 0; i < tokens; ++i) {
    const auto token = i < spec.prompt.size() ? spec.prompt[i]
                                              : static_cast<token_id>((mix(context, 0x746f6b656e) >> 16) % vocabulary);
    for (; image != spec.multimodal.end() && image->first_token <= i; ++image)
      context = mix_in(context, image->hash);
    context = mix(context, token + std::uint64_t{1});
    out.tokens.push_back(token);
    out.contents.push_back(context);
  }
  return out;
}

} // namespace troupe::engine
