// A picture of the memory over time: one page of HTML with its drawings in it.
#include <fmt/format.h>

#include <algorithm>

#include "command/words.hpp"
#include "cuvmm/units.hpp"
#include "replay/findings.hpp"

namespace cuvmm::replay {
namespace {

constexpr std::size_t width = 1000;  // of a drawing, in its own units
constexpr std::size_t height = 220;
constexpr std::size_t strip = 14;  // height of a segment
constexpr std::size_t most_points = 1000;
constexpr std::size_t most_segments = 60;

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char each : text) {
    switch (each) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += each;
    }
  }
  return safe;
}

// Events put together, so that there are at most so many points; each has the most of its events.
std::vector<std::uint64_t> thinned(const std::vector<std::uint64_t>& values) {
  const std::size_t points = std::min(values.size(), most_points);
  std::vector<std::uint64_t> kept;
  for (std::size_t i = 0; i < points; ++i) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i * values.size() / points);
    const auto end = values.begin() + static_cast<std::ptrdiff_t>((i + 1) * values.size() / points);
    kept.push_back(*std::max_element(begin, end));
  }
  return kept;
}

double x_of(std::size_t point, std::size_t points) {
  return static_cast<double>(width * point) / static_cast<double>(std::max<std::size_t>(points, 1));
}

double y_of(std::uint64_t bytes, std::uint64_t top) {
  return static_cast<double>(height) *
         (1 - static_cast<double>(bytes) / static_cast<double>(std::max<std::uint64_t>(top, 1)));
}

// Steps from left to right.
std::string steps(const std::vector<std::uint64_t>& values, std::uint64_t top) {
  std::string path;
  for (std::size_t i = 0; i < values.size(); ++i)
    path += fmt::format("{}{:.1f}H{:.1f}", i == 0 ? "M0," : "V", y_of(values[i], top), x_of(i + 1, values.size()));
  return path;
}

// The same down to the ground.
std::string area(const std::vector<std::uint64_t>& values, std::uint64_t top) {
  return steps(values, top) + fmt::format("V{}H0Z", height);
}

std::string lines_of_scale(std::uint64_t top) {
  std::string lines;
  for (const double share : {0.25, 0.5, 0.75, 1.0}) {
    const auto bytes = static_cast<std::uint64_t>(share * static_cast<double>(top));
    lines += fmt::format("<path class=scale d='M0,{0:.1f}H{1}'/><text x=4 y='{2:.1f}'>{3}</text>", y_of(bytes, top),
                         width, y_of(bytes, top) + 11, format_bytes(bytes));
  }
  return lines;
}

std::string drawing(std::string_view content, std::string_view data) {
  return fmt::format("<svg viewBox='0 0 {} {}' role=img {}>{}<path class=cursor d=''/></svg>", width, height, data,
                     content);
}

// What the pointer reads off: bytes at each point, of each name.
std::string data_of(const std::vector<std::pair<std::string, std::vector<std::uint64_t>>>& series) {
  std::string text = "data-series='[";
  for (std::size_t i = 0; i < series.size(); ++i) {
    text += fmt::format("{}[\"{}\",[", i == 0 ? "" : ",", escaped(series[i].first));
    for (std::size_t j = 0; j < series[i].second.size(); ++j)
      text += fmt::format("{}{}", j == 0 ? "" : ",", series[i].second[j]);
    text += "]]";
  }
  return text + "]'";
}

std::uint64_t highest(const Findings& findings) {
  std::uint64_t top = findings.most_live.bytes;
  for (const Played& each : findings.played) top = std::max(top, each.peak_physical);
  return top;
}

// Bytes that are live after each event, where nothing is refused.
std::vector<std::uint64_t> live_of(const traces::AllocationTrace& trace) {
  std::vector<std::uint64_t> values;
  std::uint64_t live = 0;
  for (const traces::AllocationEvent& event : trace.events) {
    const std::uint64_t bytes = trace.allocations[event.allocation].bytes;
    live = event.frees ? live - bytes : live + bytes;
    values.push_back(live);
  }
  return values;
}

// All allocators in one drawing.
std::string together(const Findings& findings) {
  const std::uint64_t top = highest(findings);
  const auto live = thinned(live_of(findings.allocations));
  std::string content = fmt::format("<path class=live d='{}'/>", area(live, top)) + lines_of_scale(top);
  std::string legend = "<span class='key live'></span>live";
  std::vector<std::pair<std::string, std::vector<std::uint64_t>>> series{{"live", live}};
  for (std::size_t i = 0; i < findings.played.size(); ++i) {
    const auto physical = thinned(findings.played[i].physical);
    content += fmt::format("<path class='line c{}' d='{}'/>", i, steps(physical, top));
    legend += fmt::format("<span class='key c{}'></span>{}", i, escaped(findings.played[i].name));
    series.emplace_back(findings.played[i].name, physical);
  }
  return fmt::format(
      "<section><h2>Physical memory over time</h2><p class=legend>{}</p>{}<p class=readout>&nbsp;</p></section>",
      legend, drawing(content, data_of(series)));
}

// --- Where memory was when most was live.

std::string strip_of(const Extent& segment, const std::vector<Extent>& allocated, std::uint64_t widest) {
  const auto x = [&](std::uint64_t bytes) {
    return static_cast<double>(width) * static_cast<double>(bytes) / static_cast<double>(widest);
  };
  std::uint64_t used = 0;
  std::string boxes;
  for (const Extent& each : allocated) {
    if (each.address < segment.address || each.address.value >= segment.address.value + segment.bytes) continue;
    used += each.bytes;
    boxes += fmt::format("<rect class=used x='{:.2f}' width='{:.2f}' height={}><title>{}</title></rect>",
                         x(each.address.value - segment.address.value), std::max(x(each.bytes), 0.3), strip,
                         format_bytes(each.bytes));
  }
  return fmt::format(
      "<svg class=strip viewBox='0 0 {} {}' preserveAspectRatio=none><rect class=hole width='{:.2f}' height={}>"
      "<title>{} at {:#x}, {} of it unused</title></rect>{}</svg>",
      width, strip, x(segment.bytes), strip, format_bytes(segment.bytes), segment.address.value,
      format_bytes(segment.bytes - used), boxes);
}

std::string places_of(const Played& played) {
  if (played.held.empty()) return {};
  std::vector<Extent> segments = played.held;
  std::stable_sort(segments.begin(), segments.end(),
                   [](const Extent& one, const Extent& other) { return one.bytes > other.bytes; });
  const std::size_t shown = std::min(segments.size(), most_segments);
  std::string strips;
  for (std::size_t i = 0; i < shown; ++i) strips += strip_of(segments[i], played.allocated, segments.front().bytes);
  return fmt::format(
      "<details open><summary>Where it was when most was live: {} segments{}, <span class='key used'></span>"
      "used and <span class='key hole'></span>holes</summary>{}</details>",
      segments.size(), shown < segments.size() ? fmt::format(", of which the {} largest", shown) : "", strips);
}

std::string part_of(const Findings& findings, const Played& played, std::size_t number) {
  const std::uint64_t top = highest(findings);
  const auto physical = thinned(played.physical);
  const auto live = thinned(played.live);
  const std::string content =
      fmt::format("<path class=hole d='{}'/><path class=live d='{}'/>{}<path class='line c{}' d='{}'/>",
                  area(physical, top), area(live, top), lines_of_scale(top), number, steps(physical, top));
  return fmt::format(
      "<section><h2><span class='key c{}'></span>{}</h2><p>{}. At most {} of physical memory, {:.3f} times what was "
      "live; {} "
      "driver calls{}.</p><p class=legend><span class='key live'></span>live<span class='key hole'></span>held and "
      "unused</p>{}<p class=readout>&nbsp;</p>{}</section>",
      number, escaped(played.name), escaped(played.description), format_bytes(played.peak_physical), played.ratio(),
      command::with_separators(played.calls.total()),
      played.refused == 0 ? "" : fmt::format("; {} allocations refused", command::with_separators(played.refused)),
      drawing(content, data_of({{"physical", physical}, {"live", live}})), places_of(played));
}

constexpr std::string_view style = R"(
:root{color-scheme:light dark;--ground:#fff;--ink:#222;--faint:#8886;--live:#7aa6c9;--hole:#e9c46a;--c0:#c1443c;--c1:#7b4fa3;--c2:#2f7d4f;--c3:#b3690e;--c4:#1f6f8b;--c5:#555}
@media(prefers-color-scheme:dark){:root{--ground:#15181c;--ink:#ddd;--live:#3d6a8f;--hole:#8a6d1f;--c0:#ff7b72;--c1:#c69cf0;--c2:#6fce94;--c3:#f0a84b;--c4:#5cc3e4;--c5:#aaa}}
body{font:15px/1.5 system-ui,sans-serif;max-width:1060px;margin:2em auto;padding:0 1em;background:var(--ground);color:var(--ink)}
h1{font-size:1.4em}h2{font-size:1.1em;margin:1.6em 0 .2em}p{margin:.2em 0}
svg{width:100%;height:auto;display:block;overflow:visible}svg text{font:10px system-ui,sans-serif;fill:var(--ink);opacity:.7}
svg.strip{height:14px;margin:2px 0}
path.live,rect.used{fill:var(--live)}path.hole,rect.hole{fill:var(--hole)}path.scale{stroke:var(--faint);fill:none}
path.line{fill:none;stroke-width:1.6;vector-effect:non-scaling-stroke}path.cursor{stroke:var(--ink);opacity:.6}
path.c0{stroke:var(--c0)}path.c1{stroke:var(--c1)}path.c2{stroke:var(--c2)}path.c3{stroke:var(--c3)}path.c4{stroke:var(--c4)}path.c5{stroke:var(--c5)}
.key{display:inline-block;width:.9em;height:.9em;margin:0 .35em 0 1em;border-radius:2px;vertical-align:-.1em}.legend .key:first-child,h2 .key{margin-left:0}
.key.live,.key.used{background:var(--live)}.key.hole{background:var(--hole)}
.key.c0{background:var(--c0)}.key.c1{background:var(--c1)}.key.c2{background:var(--c2)}.key.c3{background:var(--c3)}.key.c4{background:var(--c4)}.key.c5{background:var(--c5)}
.readout{font-variant-numeric:tabular-nums;min-height:1.5em}details{margin-top:.6em})";

// Reads off what is under the pointer; without scripts the drawings stand by themselves.
constexpr std::string_view script = R"(
const words=b=>{let u=['B','KiB','MiB','GiB','TiB'],i=0;while(b>=1024&&i<4){b/=1024;++i}return b.toFixed(i?2:0)+' '+u[i]};
for(const svg of document.querySelectorAll('svg[data-series]')){const series=JSON.parse(svg.dataset.series),out=svg.parentNode.querySelector('.readout'),cursor=svg.querySelector('.cursor');
svg.addEventListener('pointermove',e=>{const r=svg.getBoundingClientRect(),s=Math.min(.9999,Math.max(0,(e.clientX-r.left)/r.width)),n=series[0][1].length;
cursor.setAttribute('d','M'+s*1000+',0V220');out.textContent=(100*s).toFixed(1)+' % of the events: '+series.map(x=>x[0]+' '+words(x[1][Math.floor(s*n)])).join(', ')});
svg.addEventListener('pointerleave',()=>{cursor.setAttribute('d','');out.textContent='\u00a0'})})";

}  // namespace

std::string as_picture(const Findings& findings) {
  std::string parts = together(findings);
  for (std::size_t i = 0; i < findings.played.size(); ++i) parts += part_of(findings, findings.played[i], i);
  std::string facts = fmt::format("{} allocations, {} frees; at most {} live",
                                  command::with_separators(findings.allocations.allocations.size()),
                                  command::with_separators(findings.frees()), format_bytes(findings.most_live.bytes));
  if (findings.limit_bytes) facts += fmt::format("; {} of memory", format_bytes(*findings.limit_bytes));
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
      "<title>{0}: memory over time</title><style>{1}</style>\n<h1>{0}</h1><p>{2}: {3}.</p><p>{4}; {5}.</p>\n{6}\n"
      "<script>{7}</script></html>\n",
      escaped(findings.trace), style, escaped(findings.allocations.format), facts, escaped(findings.driver),
      escaped(findings.device), parts, script);
}

}  // namespace cuvmm::replay
