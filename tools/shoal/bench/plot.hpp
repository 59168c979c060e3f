// The plot of a measurement: times and answers over the load.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "tools/shoal/bench/load_generator.hpp"

namespace shoal::tool {

/// Says what is wrong with the name of a plot's file: it must end with .png or .svg.
Status check_plot_file(const std::string& file);

/// Draws percentiles of the times, and the answers per second, over the load. Writes a .png or .svg, as the name says.
///   Errors  those of writing the file (names it)
Status write_plot(const std::filesystem::path& file, const std::string& model, std::span<const Measurement> measurements);

}  // namespace shoal::tool
