mod decision_table;
