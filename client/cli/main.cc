#include <iostream>

#include "client/cli/app.h"

int main(int argc, char** argv) { return attend::cli::Run(argc, argv, std::cout, std::cerr); }
