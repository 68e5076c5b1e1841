// fmt 9, compiled once and hidden in what links it. As headers only it costs every source file that
// includes it seconds of compile time; as Debian's shared library it would be one more thing that a
// trainer needs beside libckpt, and may need in another version. Where fmt is used as headers only
// (cmake/CkptDependencies.cmake), nothing is in here.
#include <fmt/format.h>

#ifndef FMT_HEADER_ONLY
#include <fmt/format-inl.h>

#include <locale>

static_assert(FMT_VERSION / 10000 == 9, "these are the templates that fmt 9 leaves to its library");

FMT_BEGIN_NAMESPACE
namespace detail {
template dragonbox::decimal_fp<float> dragonbox::to_decimal(float) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double) noexcept;
template locale_ref::locale_ref(const std::locale&);
template std::locale locale_ref::get<std::locale>() const;
template thousands_sep_result<char> thousands_sep_impl(locale_ref);
template char decimal_point_impl(locale_ref);
template void buffer<char>::append(const char*, const char*);
template void vformat_to(buffer<char>&, string_view, format_args, locale_ref);
}  // namespace detail
FMT_END_NAMESPACE
#endif  // FMT_HEADER_ONLY
