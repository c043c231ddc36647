"""No rank of the program is at fault: hardware, a silent node, or nothing that any rule knows."""
