// The code of the formatting library, compiled here once rather than in each file that formats (fmt's header-only form
// costs a file more time to compile than all of its own code does; distributions bring no static library, and programs
// for machines without libfmt need one).
#include <fmt/format-inl.h>

static_assert(FMT_VERSION >= 90000 && FMT_VERSION < 100000,
              "other versions of fmt instantiate other templates: see CMakeLists.txt");

FMT_BEGIN_NAMESPACE
namespace detail {

// What the header declares as instantiated elsewhere.
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;

// What it defines for others in its inline part alone.
template void vformat_to(buffer<char>&, string_view, basic_format_args<FMT_BUFFER_CONTEXT(char)>, locale_ref);
template void buffer<char>::append(const char*, const char*);
template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template locale_ref::locale_ref(const std::locale&);
template auto locale_ref::get<std::locale>() const -> std::locale;

}  // namespace detail
FMT_END_NAMESPACE
